"""The command `holdfast`, in a hurry: deaths are noticed soon.

That of a worker by its missing heartbeats, which else takes longer; that of a host by a task queue that nobody polls,
which else takes minutes. Nothing else is different.
"""

from __future__ import annotations

from datetime import timedelta

from holdfast.activities.builtin.shell import Shell
from holdfast.workers.cli import main
from holdfast.workflows import call_activities

HEARTBEAT_SECONDS = 2
LIMITS = {"FIRST_LIMIT": timedelta(seconds=1), "SECOND_LIMIT": timedelta(seconds=15)}
"""How long a call waits for its host, first and then once more: for a worker that starts on a busy machine too."""

if __name__ == "__main__":
    Shell.heartbeat_seconds = HEARTBEAT_SECONDS
    for name, limit in LIMITS.items():
        setattr(call_activities, name, limit)
    main()
