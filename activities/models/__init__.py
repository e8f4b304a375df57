"""Models of every provider, behind one request: what they are told, what they reply, and how they fail."""
