"""What an agent did and who allowed it: told, exported, verified and replayed (S43). See docs/how-to/audit.md."""
