"""One request to a model of any provider: what it is told, what it replies, how it fails. No state of a turn."""
