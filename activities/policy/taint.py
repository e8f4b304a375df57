"""What comes into a turn from outside, and what goes out: the facts behind `tainted` and `sends`.

Both err towards yes. A command may send unless every program of it is known to be harmless; it takes in what others
wrote when a program of it is known to do so, or when it is not certain what would run.
"""

from __future__ import annotations

from holdfast.activities.policy.conditions import CallFacts
from holdfast.activities.policy.protection.protected_files import ProtectedFiles
from holdfast.activities.policy.subject.shell_commands import CommandReading
from holdfast.activities.policy.subject.subject import Subject
from holdfast.activities.shell.programs.program_effects import is_harmless, may_bring_in


def may_take_in(call: Subject | CallFacts, *, open_world: bool = False) -> bool:
    """Does its result hold what others wrote? `open_world` says so of a tool whose calls name no url or command."""
    facts = call if isinstance(call, CallFacts) else CallFacts(call)
    return open_world or bool(facts.subject.urls) or (facts.reading is not None and _may_bring_in(facts.reading))


def may_send(call: Subject | CallFacts, *, open_world: bool = False) -> bool:
    """May data leave by it? A url alone can carry some."""
    facts = call if isinstance(call, CallFacts) else CallFacts(call)
    return open_world or bool(facts.subject.urls) or (facts.reading is not None and not _is_only_looking(facts))


def complete_subject(subject: Subject, declared: bool | None, protected: ProtectedFiles | None = None) -> Subject:
    """With whether it sends, as somebody said, or, of a call that is only described, as it looks; and what it protects.

    Without a workspace's own, files that decide what runs are known by their names alone.
    """
    found = (protected or ProtectedFiles()).find(subject)
    return subject.model_copy(update={"sends": may_send(subject) if declared is None else declared, "protected": found})


def _may_bring_in(reading: CommandReading) -> bool:
    return bool(reading.doubts) or any(map(may_bring_in, reading.programs))


def _is_only_looking(facts: CallFacts) -> bool:
    """Is every program of its command surely harmless, and nothing set that would make it another?"""
    reading = facts.reading
    if reading is None or reading.doubts or facts.subject.sets_variables:
        return False
    return bool(reading.programs) and all(
        is_harmless(program) and None not in program.words for program in reading.programs
    )
