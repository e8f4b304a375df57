"""What a history says, and what it refers to. Nothing that renders."""
