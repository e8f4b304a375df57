"""Sweeping the payload store: which payloads histories still need, and removing the rest. Nothing that prints."""
