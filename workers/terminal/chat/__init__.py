"""The chat on the screen. No command of the command line."""
