"""Helpers that know nothing of Holdfast: text, digests, files, durations. Nothing of a call, a turn or Temporal."""
