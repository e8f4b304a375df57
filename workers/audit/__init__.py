"""What an agent did and who allowed it: told, exported, verified and replayed (S43). docs/audit.md explains it."""
