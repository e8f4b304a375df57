"""Approvals, decisions, who may decide, and grants. Nothing that runs calls."""
