"""MCP servers as a person manages them: listed, logged in, definitions approved. Nothing that prints results."""
