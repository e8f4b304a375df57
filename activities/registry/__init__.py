"""The tools a worker has: where they come from, and how their arguments are checked."""
