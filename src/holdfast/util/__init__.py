"""Helpers that know nothing of Holdfast: text, JSON, globs, files, durations. Nothing of a call, a turn or Temporal."""
