"""Finding turns, approvals, grants, sessions and task queues on a server. Nothing that prints."""
