"""Processes of the operating system: commands, their trees, their output. No tool and no policy."""
