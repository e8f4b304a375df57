"""Searching the content of files with ripgrep, in a process that can be killed. No tool."""
