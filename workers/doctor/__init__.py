"""Checks of an installation, run and reported. No command of the command line."""
