"""What servers were given, hidden in all that they say. Nothing that connects."""
