"""Forms that a person fills in: their fields, checks and descriptions. No terminal and no MCP."""
