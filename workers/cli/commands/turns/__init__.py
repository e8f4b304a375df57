"""The commands about turns. What they do is in the rooms below."""
