"""Logins at MCP servers: OAuth, stored tokens and their renewal. Nothing about tools."""
