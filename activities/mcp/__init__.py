"""Tools of MCP servers: connected, listed and called, and otherwise tools like all others (S39).

Only `connecting`, `eliciting`, `stdio`, `http`, `faults`, `readable`, `package` and, for logins, `oauth`, `refusals`
and `revoking` know the `mcp` package, and they are imported when a server is configured: it takes longer to import than
everything else together, and no workflow may import it.
"""
