"""Tools of MCP servers: connected, listed and called, and otherwise tools like all others (S39).

Only `connection`, `elicitation`, `stdio`, `http_client`, `faults`, `resources`, `sdk` and, for logins, `oauth`,
`login_errors` and `revoke` know the `mcp` package, and they are imported when a server is configured: it takes longer
to import than everything else together, and no workflow may import it.
"""
