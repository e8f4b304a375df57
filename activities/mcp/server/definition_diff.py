"""What is different between two definitions of a tool, in words and as a diff. Pure."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from pydantic import JsonValue

from holdfast.activities.mcp.server.definitions import Definition
from holdfast.util.text import shorten_text

NAMES_SHOWN = 8
NAME_LIMIT = 60
COMPARE_LIMIT = 600
"""Lines that are compared one by one: that takes as long as their square."""
LINES_SHOWN = 100


def describe_definition_change(before: Definition, after: Definition) -> str:
    """What changed, in one line: `its description, the parameters path (new) and force (gone)`."""
    return ", ".join(_list_parts(before, after)) or "nothing"


def diff_definitions(before: Definition, after: Definition) -> str:
    """The same line by line. Where that would take long, the first lines that went and came."""
    old, new = before.format_lines(), after.format_lines()
    same = next((place for place, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), 0)
    start = max(0, same - 1)
    names = ("definition as it was approved", "definition as it is now")
    if max(len(old), len(new)) - start <= COMPARE_LIMIT:
        lines: Iterable[str] = difflib.unified_diff(old[start:], new[start:], *names, lineterm="", n=1)
    else:
        gone, come = Counter(old) - Counter(new), Counter(new) - Counter(old)
        lines = [f"--- {names[0]}", f"+++ {names[1]}", *_list_first("-", old, gone), *_list_first("+", new, come)]
    return "".join(f"{line}\n" for line in lines)


def _list_first(sign: str, lines: Iterable[str], among: Counter[str]) -> Iterator[str]:
    """The first of these lines that are on one side only."""
    if not among:
        yield f"{sign}… the same lines in another order"
    found = [line for line in lines if line in among]
    yield from (f"{sign}{line}" for line in found[:LINES_SHOWN])
    if len(found) > LINES_SHOWN:
        yield f"{sign}… {len(found) - LINES_SHOWN:,} more lines"


def _list_parts(before: Definition, after: Definition) -> Iterator[str]:
    if before.title != after.title:
        yield "its title"
    if before.description != after.description:
        yield "its description"
    yield from _describe_named("parameter", _get_properties(before.parameters), _get_properties(after.parameters))
    if _drop_properties(before.parameters) != _drop_properties(after.parameters):
        yield "the rules for its parameters"
    if before.output != after.output:
        yield "the form of its result"
    for name in sorted({*before.annotations, *after.annotations}):
        old, new = before.annotations.get(name), after.annotations.get(name)
        if old != new:
            yield f"{name} from {_format_hint(old)} to {_format_hint(new)}"


def _describe_named(what: str, before: Mapping[str, JsonValue], after: Mapping[str, JsonValue]) -> Iterator[str]:
    changed = [
        f"{shorten_text(name, NAME_LIMIT)}{' (new)' if name not in before else ' (gone)' if name not in after else ''}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]
    if changed:
        more = [f"{len(changed) - NAMES_SHOWN} others"] if len(changed) > NAMES_SHOWN else []
        yield f"the {what}{'s' * (len(changed) > 1)} {' and '.join([*changed[:NAMES_SHOWN], *more])}"


def _get_properties(schema: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _drop_properties(schema: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    return {key: value for key, value in schema.items() if key != "properties"}


def _format_hint(value: JsonValue) -> str:
    return {True: "yes", False: "no", None: "silence"}.get(value if isinstance(value, bool) else None, "silence")
