"""The versions of a deployment, as people look at them: which takes up new turns, and which must still live. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

Status = Literal["current", "ramping", "draining", "drained", "inactive"]


@dataclass(frozen=True)
class OpenCounts:
    """What is not done yet on a version."""

    turns: int = 0
    sessions: int = 0
    others: int = 0
    """Workflows that are not ours: a worker may run those of its host's program too."""

    def __bool__(self) -> bool:
        """Is there anything?"""
        return bool(self.turns or self.sessions or self.others)

    def __str__(self) -> str:
        """In words."""
        turns, sessions = _format_count(self.turns, "turn"), _format_count(self.sessions, "session")
        if self.others:
            return f"{turns}, {sessions} and {_format_count(self.others, 'other workflow')}"
        return f"{turns} and {sessions}"


@dataclass(frozen=True)
class Version:
    """One version of the code."""

    build: str
    status: Status
    open: OpenCounts = OpenCounts()
    workers: int = 0
    """That poll now."""

    @property
    def is_stuck(self) -> bool:
        """Does something wait for a worker of this version, and there is none?"""
        return bool(self.open) and not self.workers

    @property
    def is_needed(self) -> bool:
        """May none of its workers be stopped for good? One that has never been current is about to be."""
        coming = self.status == "inactive" and self.workers > 0
        return bool(self.open) or coming or self.status in ("current", "ramping")


@dataclass(frozen=True)
class Fleet:
    """A deployment: all of its versions, the newest first, and what has none."""

    deployment: str
    task_queue: str
    versions: tuple[Version, ...] = ()
    current: str | None = None
    ramping: str | None = None
    percentage: float = 0
    """Of what begins, that begins on the ramping version."""
    unversioned: OpenCounts = OpenCounts()
    """Has no version: turns of workers without one, and those that no worker has taken up."""
    unversioned_workers: int = 0

    def find_version(self, build: str) -> Version | None:
        """A version by its build."""
        return next((version for version in self.versions if version.build == build), None)

    def as_json(self) -> dict[str, Any]:
        """The same as JSON."""
        more = [{"stuck": one.is_stuck, "needed": one.is_needed} for one in self.versions]
        told = asdict(self)
        return {**told, "versions": [{**one, **two} for one, two in zip(told["versions"], more, strict=True)]}


def list_advice(fleet: Fleet, own_build: str | None = None) -> list[str]:
    """What there is to do, in sentences; of a worker of version `this` first what concerns it."""
    return [
        *_advise_version(fleet, own_build),
        *_advise_routing(fleet, own_build),
        *(_describe_stuck(version) for version in fleet.versions if version.is_stuck),
    ]


def _advise_version(fleet: Fleet, own_build: str | None) -> Iterable[str]:
    if own_build and fleet.current and own_build not in (fleet.current, fleet.ramping):
        yield (
            f"version {own_build!r} of {fleet.deployment!r} gets no new turns, {fleet.current!r} does, "
            f"until: holdfast versions set-current {own_build}"
        )


def _advise_routing(fleet: Fleet, own_build: str | None) -> Iterable[str]:
    if fleet.current is None and fleet.versions:
        who = "workers without a version get new turns" if fleet.unversioned_workers else "new turns wait"
        build = own_build or fleet.versions[0].build
        yield f"no version of {fleet.deployment!r} is current: {who}, until: holdfast versions set-current {build}"
    elif fleet.current and fleet.unversioned_workers:
        yield (
            f"{_format_count(fleet.unversioned_workers, 'worker')} without a version on {fleet.task_queue!r} "
            f"get no turns, since {fleet.current!r} is current: stop them, or give them a build (HOLDFAST_BUILD)"
        )


def _describe_stuck(version: Version) -> str:
    return (
        f"{version.open} wait for a worker of version {version.build!r}, and none polls: start one, or move them to "
        "another version (docs/how-to/upgrading.md tells when that works): holdfast versions move ID BUILD"
    )


def _format_count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
