"""Bundles: a turn or a session as a file that others can verify. Nothing that renders."""
