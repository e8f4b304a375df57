"""Versions of workers: what the server knows of them, and who gets new turns. Nothing that prints.

What `temporal worker deployment` does is not done here (docs/how-to/upgrading.md).
"""
