"""Logins at MCP servers: OAuth, tokens in a file, renewal. No tool."""
