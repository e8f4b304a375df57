"""What an agent did and who allowed it: shown, exported, verified and replayed (S43). Nothing that changes a turn.

docs/how-to/audit.md explains it, docs/decisions/0026-audit-from-the-history.md why it is read from the history.
"""
