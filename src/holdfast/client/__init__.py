"""The client API: start and watch turns and sessions, decide on approvals. No worker code."""
