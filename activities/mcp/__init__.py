"""MCP servers: connected, listed and called; their tools are tools of the registry like all others (S39). Nothing that
judges a call.

The `mcp` package takes longer to import than everything else together. Only modules that are imported when a server is
connected import it: those of `transport` except `exchange` and `server_log`, and `connection`, `elicitation`,
`requests`, `oauth`, `login_errors`, `mcp_private` and `sdk`. tests/integration/workers/test_imports.py holds that.
"""
