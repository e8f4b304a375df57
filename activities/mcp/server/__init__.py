"""One connected MCP server: its life, its definitions and its questions. No tool of the registry."""
