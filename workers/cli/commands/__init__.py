"""The commands, one module for each group. What they do is in the rooms below."""
