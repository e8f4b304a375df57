"""What a turn did and who allowed it: shown, exported, verified and replayed (S43). Nothing that changes a turn."""
