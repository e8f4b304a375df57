"""Which MCP servers the settings name, resolved for connecting. Nothing that connects."""
