"""One connected MCP server: its lifetime, its definitions, its questions and its answers. Nothing about the
registry.
"""
