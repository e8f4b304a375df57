"""The facts of a history and its replay as one timeline. Nothing that renders."""
