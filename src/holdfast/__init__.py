"""Holdfast: a durable tool-call engine for AI assistants, on Temporal."""
