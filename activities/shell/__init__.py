"""Shell commands, read without running them: what a command would run, and which of it is known."""
