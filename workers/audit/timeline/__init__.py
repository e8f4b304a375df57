"""The facts of a history as one timeline. Nothing that renders."""
