"""What a history says, what it refers to, and what a replay of it shows. Nothing that renders."""
