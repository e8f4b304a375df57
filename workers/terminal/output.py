"""How commands write to standard output and standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import Any

from holdfast.util.text import escape_controls, strip_controls


def print_json(value: Any) -> None:
    """One JSON document; on one line where standard output is no terminal."""
    sys.stdout.write(json.dumps(value, ensure_ascii=True, indent=2 if sys.stdout.isatty() else None) + "\n")
    sys.stdout.flush()


def print_text(text: str) -> None:
    """One line on standard output, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def print_table(header: tuple[str, ...], rows: Iterable[tuple[Any, ...]], right: Iterable[int] = ()) -> None:
    """A table for people; the columns in `right` are aligned to the right."""
    from holdfast.workers.terminal import render

    render.build_console().print(render.build_table(header, rows, right))


def print_answer(json: bool, text: str, **body: Any) -> None:
    """What a command did: a sentence, or with `json` the body as JSON."""
    if json:
        print_json(body)
    else:
        print_text(strip_controls(text))


def escape_line(value: object) -> str:
    """One line in which every character shows: a name that somebody else chose may hold anything."""
    return escape_controls(str(value)).replace("\n", "␊").replace("\t", "␉")


def print_note(text: str) -> None:
    """A remark on standard error, without control characters."""
    sys.stderr.write(strip_controls(text) + "\n")
    sys.stderr.flush()


def is_interactive() -> bool:
    """Are standard input and output a terminal that can move its cursor?"""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
