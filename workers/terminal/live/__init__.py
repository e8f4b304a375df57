"""A running turn on the screen, and deciding in it. No command of the command line."""
