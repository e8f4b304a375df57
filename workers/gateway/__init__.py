"""The HTTP endpoint: the inbox, an item of it, a decision. Closed to whoever has no token (docs/reference/http.md)."""

from __future__ import annotations

READY_LINE = "gateway ready"
"""How the line begins that says where it listens."""
STOP_SECONDS = 10.0
"""After the signal, its process ends whatever hangs."""
