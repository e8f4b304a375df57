"""What is different between two definitions of a tool, in words and as a diff. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from holdfast.activities.mcp.definitions import Definition
from holdfast.content import shorten

NAMES_SHOWN = 8
NAME_LIMIT = 60


def told(before: Definition, after: Definition) -> str:
    """What changed, in one line: `its description, the parameters path (new) and force (gone)`."""
    return ", ".join(_parts(before, after)) or "nothing"


def diff_of(before: Definition, after: Definition) -> str:
    """The same line by line."""
    lines = difflib.unified_diff(
        before.lines(), after.lines(), "definition as it was approved", "definition as it is now", lineterm="", n=1
    )
    return "".join(f"{line}\n" for line in lines)


def _parts(before: Definition, after: Definition) -> Iterator[str]:
    if before.title != after.title:
        yield "its title"
    if before.description != after.description:
        yield "its description"
    yield from _named("parameter", _properties(before.parameters), _properties(after.parameters))
    if _rest(before.parameters) != _rest(after.parameters):
        yield "the rules for its parameters"
    if before.output != after.output:
        yield "the form of its result"
    for name in sorted({*before.annotations, *after.annotations}):
        old, new = before.annotations.get(name), after.annotations.get(name)
        if old != new:
            yield f"{name} from {_said(old)} to {_said(new)}"


def _named(what: str, before: Mapping[str, JsonValue], after: Mapping[str, JsonValue]) -> Iterator[str]:
    changed = [
        f"{shorten(name, NAME_LIMIT)}{' (new)' if name not in before else ' (gone)' if name not in after else ''}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]
    if changed:
        more = [f"{len(changed) - NAMES_SHOWN} others"] if len(changed) > NAMES_SHOWN else []
        yield f"the {what}{'s' * (len(changed) > 1)} {' and '.join([*changed[:NAMES_SHOWN], *more])}"


def _properties(schema: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _rest(schema: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    return {key: value for key, value in schema.items() if key != "properties"}


def _said(value: JsonValue) -> str:
    return {True: "yes", False: "no", None: "silence"}.get(value if isinstance(value, bool) else None, "silence")
