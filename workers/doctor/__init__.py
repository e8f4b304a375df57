"""The checks of all parts of an installation, run and reported. No command of the command line."""
