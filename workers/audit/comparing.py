"""What was done to the records of a member: changed, removed, added, moved. Pure, over their digests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from holdfast.workers.audit.chain import Record


def differences(expected: Sequence[Record], found: Sequence[str], file: str) -> Iterator[str]:
    """Each record that is not where the chain has it, and each line that no record is about."""
    wanted = [record.sha256 for record in expected]
    if wanted == list(found):
        return
    spare, lacking = Counter(found), Counter(wanted)
    matcher = SequenceMatcher(None, wanted, list(found), autojunk=False)
    for kind, first, last, start, end in matcher.get_opcodes():
        if kind == "equal":
            continue
        gone, come = list(range(first, last)), list(range(start, end))
        moved_away = [place for place in gone if spare[wanted[place]]]
        moved_here = [place for place in come if lacking[found[place]]]
        for place in moved_away:
            yield f"moved: {expected[place].about} is not in its place"
        gone = [place for place in gone if place not in moved_away]
        come = [place for place in come if place not in moved_here]
        for place, _ in zip(gone, come, strict=False):
            yield f"changed: {expected[place].about}"
        for place in gone[len(come) :]:
            yield f"missing: {expected[place].about}"
        for place in come[len(gone) :]:
            yield f"added: line {place + 1} of {file}"
        for place in moved_here:
            if not moved_away and wanted.count(found[place]) < spare[found[place]]:
                yield f"added: line {place + 1} of {file} is there twice"
