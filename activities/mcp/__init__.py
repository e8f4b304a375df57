"""Tools of MCP servers: connecting, listing and calling them (S39). Nothing that judges a call.

Only `connection`, `elicitation`, `stdio`, `http_client`, `faults`, `resources`, `sdk` and, for logins, `oauth`,
`login_errors` and `revoke` know the `mcp` package, and they are imported when a server is configured: it takes longer
to import than everything else together, and no workflow may import it.
"""
