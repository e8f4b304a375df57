"""Patterns with wildcards, over texts and over paths. No rules: what a match means is for the caller."""
