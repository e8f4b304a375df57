"""Searching the content of files, by ripgrep in a process that can be killed."""
