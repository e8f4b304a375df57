"""Which tests one process gets where several share the work: all by themselves, but for some that belong together."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

TOGETHER = (
    # They kill and wait, and leave a processor idle: one after another, beside all others.
    "tests/chaos/",
    # The recipe of the image is done once, and downloads what it installs.
    "tests/deploy/test_image.py",
)


class Sharing(LoadScopeScheduling):  # type: ignore[misc]
    """Tests that belong together go to one process, in their order; the others to whichever is free."""

    def _split_scope(self, nodeid: str) -> str:
        return next((start for start in TOGETHER if nodeid.startswith(start)), nodeid)
