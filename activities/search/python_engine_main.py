"""Searching opened files with Python's `re`, in a process of its own that can be killed.

It stands in for ripgrep and writes what ripgrep is asked to write (`engines.py`). It is run as a script, away from the
package: it starts in a few milliseconds and sees nothing but the descriptors it is given.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

FindMatch = Callable[[bytes], int | None]
"""Where in a line the first match begins, in bytes."""


def main(request: dict[str, Any]) -> int:
    """Write `<descriptor>\\0<line>:<column>:<offset>:` for each line that matches, or `<descriptor>\\0<count>`."""
    signal.alarm(request["seconds"])  # nobody may be left to kill us
    try:
        find = build_finder(request["pattern"], literal=request["literal"], ignore_case=request["ignore_case"])
    except (re.error, OverflowError, RecursionError, MemoryError) as error:
        sys.stderr.write(f"error: {str(error)[:1_000]}\n")
        return 2
    for descriptor in request["files"]:
        with open(descriptor, "rb", closefd=False) as file:
            hits = islice(list_matches(file.read(), find), request["most"])
        for text in format_hits(hits, counting=request["counting"]):
            sys.stdout.write(f"{descriptor}\0{text}\n")
        sys.stdout.flush()
    return 0


def build_finder(pattern: str, *, literal: bool, ignore_case: bool) -> FindMatch:
    """How a line is searched."""
    if literal and not ignore_case:
        wanted = pattern.encode()
        return lambda line: found if (found := line.find(wanted)) >= 0 else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = re.compile(re.escape(pattern) if literal else pattern, re.IGNORECASE if ignore_case else 0)

    def find_match(line: bytes) -> int | None:
        text = line.decode("utf-8", "surrogateescape")
        match = compiled.search(text)
        return len(text[: match.start()].encode("utf-8", "surrogateescape")) if match else None

    return find_match


def list_matches(data: bytes, find: FindMatch) -> Iterator[tuple[int, int, int]]:
    """Line, column and offset of each line that matches; a carriage return at its end is no part of it."""
    offset = 0
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n") if data else (), 1):
        column = find(line.removesuffix(b"\r"))
        if column is not None:
            yield number, column + 1, offset
        offset += len(line) + 1


def format_hits(hits: Iterator[tuple[int, int, int]], *, counting: bool) -> Iterator[str]:
    """As ripgrep puts it."""
    if counting:
        count = sum(1 for _ in hits)
        yield from [str(count)] if count else []
    else:
        yield from (f"{line}:{column}:{offset}:" for line, column, offset in hits)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
