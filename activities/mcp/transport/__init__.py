"""The wires to MCP servers: stdio and HTTP, bounded and counted. Nothing about single tools."""
