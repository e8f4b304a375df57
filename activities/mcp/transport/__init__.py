"""The transports to MCP servers, stdio and streamable HTTP, bounded. Nothing about single tools.

Why: docs/decisions/0016-own-mcp-transports.md.
"""
