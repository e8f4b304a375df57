"""The HTTP endpoint: the inbox, an approval, a decision, a turn. Every request needs a token
(docs/reference/http.md).
"""

from __future__ import annotations

READY_LINE = "gateway ready"
"""The beginning of the line that says where it listens."""
STOP_SECONDS = 10.0
"""After the signal, the process ends at the latest after this time."""
