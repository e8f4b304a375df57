"""A server's list of tools, as far as it can be used."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from holdfast.activities.catalogue.json_schemas import CHECKING, TooHard
from holdfast.activities.catalogue.schemas import JsonSchema
from holdfast.activities.mcp.definitions import Definition, definition_of, wanted
from holdfast.activities.mcp.names import READING
from holdfast.activities.policy.globs import Glob
from holdfast.configuration import McpServerSettings
from holdfast.content import said, shorten
from holdfast.errors import BadInput
from holdfast.suggestions import did_you_mean

if TYPE_CHECKING:
    from mcp_types import Tool as ListedTool

MOST_TOO_HARD = 3
"""Schemas of one list that may take too long: each keeps others waiting."""
LIST_LIMIT = 8_000_000
"""Characters of all definitions of a server."""


class Listing(NamedTuple):
    """Tools by the server's own names for them, and why others are not among them."""

    definitions: dict[str, Definition]
    left_out: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    """What of the settings is about none of its tools."""


def listing_of(tools: Iterable[ListedTool], settings: McpServerSettings) -> Listing:
    """What of a list is taken. Two tools of one name are none: nobody could say which of them is called."""
    found: dict[str, Definition] = {}
    names: list[str] = []
    left_out: list[str] = []
    twice: set[str] = set()
    room = LIST_LIMIT
    for tool in tools:
        try:
            definition = definition_of(tool)
        except (BadInput, ValueError) as error:
            left_out.append(said(error))
            continue
        names.append(definition.name)
        room -= definition.size
        if room < 0:
            left_out.append(f"its definitions take over {LIST_LIMIT:,} characters: the rest was not read")
            break
        if definition.name in found or definition.name in twice:
            twice.add(definition.name)
            found.pop(definition.name, None)
        elif wanted(definition, settings):
            found[definition.name] = definition
    left_out += [f"it lists {shorten(name, 100)!r} twice, so neither is used" for name in sorted(twice)]
    return Listing(found, tuple(left_out), tuple(_remarks([*names, *READING], settings)))


async def usable(listing: Listing, known: Mapping[str, Definition]) -> Listing:
    """Without the tools whose parameters nobody can check; those that are as they were `known` have been tried."""
    loop = asyncio.get_running_loop()
    unusable: dict[str, str] = {}
    too_hard = 0
    for name, definition in listing.definitions.items():
        if known.get(name) == definition:
            continue
        if too_hard >= MOST_TOO_HARD:
            unusable[name] = f"it was not looked at: {too_hard} others take too long to check"
            continue
        try:
            await loop.run_in_executor(CHECKING, JsonSchema({"type": "object", **definition.parameters}).compile)
        except BadInput as error:
            unusable[name] = str(error)
            too_hard += isinstance(error, TooHard)
    kept = {name: one for name, one in listing.definitions.items() if name not in unusable}
    told = [f"{shorten(name, 100)!r} cannot be used: {reason}" for name, reason in unusable.items()]
    return listing._replace(definitions=kept, left_out=(*listing.left_out, *told))


def _remarks(names: Sequence[str], settings: McpServerSettings) -> Iterator[str]:
    """What matches none of these names: misspelt, it would leave in what is to be left out."""
    globs = {"include": settings.include, "exclude": settings.exclude, "effects": tuple(settings.effects)}
    for key, patterns in globs.items():
        for pattern in patterns:
            matches = pattern.__eq__ if key == "effects" else Glob(pattern).matches
            if pattern != "*" and not any(map(matches, names)):
                hint = did_you_mean(pattern, names)
                yield " ".join(filter(None, (f"`{key}` has {pattern!r}, and no tool of it is called so.", hint)))
