"""Web addresses that may be connected to, and pages as text. No tool."""
