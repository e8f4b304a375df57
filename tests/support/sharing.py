"""What one process gets at a time where several share the tests: a test, a file of quick ones, or all of a folder."""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

TOGETHER = (
    # They kill and wait, and leave a processor idle: one after another, beside all others.
    "tests/chaos/",
    # The recipe of the image is done once, and downloads what it installs.
    "tests/deploy/test_image.py",
)
QUICK = ("tests/unit/", "tests/replay/", "tests/security/")
"""Folders of many tests that take milliseconds: to hand each of them out takes longer than to run it."""


class Sharing(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out the tests in the order of the folders: those that wait come early, quick ones last."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        together = next((start for start in TOGETHER if nodeid.startswith(start)), None)
        return together or (nodeid.partition("::")[0] if nodeid.startswith(QUICK) else nodeid)
