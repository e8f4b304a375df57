"""How commands write to standard output and standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import Any

from holdfast.util.text import escape_controls, strip_controls


def print_json(value: Any) -> None:
    """Print a JSON document; in one line if standard output is not a terminal."""
    sys.stdout.write(json.dumps(value, ensure_ascii=True, indent=2 if sys.stdout.isatty() else None) + "\n")
    sys.stdout.flush()


def print_text(text: str) -> None:
    """Print a line on standard output, and flush."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def print_table(header: tuple[str, ...], rows: Iterable[tuple[Any, ...]], right: Iterable[int] = ()) -> None:
    """Print a table; the columns in `right` are aligned to the right."""
    from holdfast.workers.terminal import render  # rich, which most output does without

    render.build_console().print(render.build_table(header, rows, right))


def print_answer(json: bool, text: str, **body: Any) -> None:
    """Print the result of a command: the sentence, or with `json` the body as JSON."""
    if json:
        print_json(body)
    else:
        print_text(strip_controls(text))


def escape_line(value: object) -> str:
    """The value in one line with every character visible: a name may contain control characters."""
    return escape_controls(str(value)).replace("\n", "␊").replace("\t", "␉")


def print_note(text: str) -> None:
    """Print a remark on standard error, without control characters."""
    sys.stderr.write(strip_controls(text) + "\n")
    sys.stderr.flush()


def is_interactive() -> bool:
    """Whether standard input and output are a terminal that can move its cursor."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
