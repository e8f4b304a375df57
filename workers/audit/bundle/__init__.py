"""A turn as a file that others can verify. Nothing that renders."""
