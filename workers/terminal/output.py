"""How commands write to standard output and standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import Any


def print_json(value: Any) -> None:
    """One JSON document, on one line when it is read line by line."""
    sys.stdout.write(json.dumps(value, ensure_ascii=True, indent=2 if sys.stdout.isatty() else None) + "\n")
    sys.stdout.flush()


def print_text(text: str) -> None:
    """One line for whoever waits for it."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def print_table(header: tuple[str, ...], rows: Iterable[tuple[Any, ...]], right: Iterable[int] = ()) -> None:
    """A table for people; the columns in `right` are aligned to the right."""
    from holdfast.workers.terminal import render

    render.build_console().print(render.build_table(header, rows, right))


def print_answer(json: bool, text: str, **body: Any) -> None:
    """What a command did: a sentence, or the same as JSON."""
    from holdfast.util.text import strip_controls

    if json:
        print_json(body)
    else:
        print_text(strip_controls(text))


def escape_line(value: object) -> str:
    """One line in which every character shows: names of others may hold anything."""
    from holdfast.workers.terminal.settings_text import escape_line

    return escape_line(str(value))


def print_note(text: str) -> None:
    """A remark beside the answer. Names in it may be anybody's."""
    from holdfast.util.text import strip_controls

    sys.stderr.write(strip_controls(text) + "\n")
    sys.stderr.flush()


def is_interactive() -> bool:
    """Is a person at both ends?"""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
