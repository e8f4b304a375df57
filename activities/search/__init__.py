"""Searching the content of files, by ripgrep or our own engine, in a process that can be killed."""
