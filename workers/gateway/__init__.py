"""The HTTP endpoint for approvals, closed to requests without a token. No page (docs/reference/http.md)."""

from __future__ import annotations

READY_LINE = "gateway ready"
"""How the line begins that says where it listens."""
STOP_SECONDS = 10.0
"""After the signal, its process ends whatever hangs."""
