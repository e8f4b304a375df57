"""A server's list of tools, as far as it can be used."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from holdfast.activities.mcp.secrets.redactor import Secrets
from holdfast.activities.mcp.server.definitions import Definition, build_definition, is_wanted
from holdfast.activities.registry.arguments import JsonSchema
from holdfast.activities.registry.json_schema import CHECK_EXECUTOR, SchemaTooHard
from holdfast.config.schema import McpServerSettings
from holdfast.errors import BadInput
from holdfast.util.globs import Glob
from holdfast.util.mcp_names import READ_TOOLS
from holdfast.util.suggestions import did_you_mean
from holdfast.util.text import exception_text, shorten_text

if TYPE_CHECKING:
    from mcp_types import Tool as ListedTool

MAX_TOO_HARD = 3
"""Schemas of one list that may take too long: each keeps others waiting."""
LIST_LIMIT = 8_000_000
"""Characters of all definitions of a server."""


class ToolListing(NamedTuple):
    """Tools by the server's own names for them, and why others are not among them."""

    definitions: Mapping[str, Definition]
    left_out: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    """What of the settings is about none of its tools."""


def build_listing(tools: Iterable[ListedTool], settings: McpServerSettings, secrets: Secrets) -> ToolListing:
    """What of a list is taken. Two tools of one name are none: nobody could say which of them is called."""
    found: dict[str, Definition] = {}
    names: list[str] = []
    left_out: list[str] = []
    twice: set[str] = set()
    room = LIST_LIMIT
    for tool in tools:
        try:
            definition = build_definition(tool, secrets)
        except (BadInput, ValueError) as error:
            left_out.append(exception_text(error))
            continue
        names.append(definition.name)
        room -= definition.size
        if room < 0:
            left_out.append(f"its definitions take over {LIST_LIMIT:,} characters: the rest was not read")
            break
        if definition.name in found or definition.name in twice:
            twice.add(definition.name)
            found.pop(definition.name, None)
        elif is_wanted(definition, settings):
            found[definition.name] = definition
    left_out += [f"it lists {shorten_text(name, 100)!r} twice, so neither is used" for name in sorted(twice)]
    return ToolListing(found, tuple(left_out), tuple(_list_remarks([*names, *READ_TOOLS], settings)))


async def drop_unusable(listing: ToolListing, known: Mapping[str, Definition]) -> ToolListing:
    """Without the tools whose parameters nobody can check; those that are as they were `known` have been tried."""
    loop = asyncio.get_running_loop()
    unusable: dict[str, str] = {}
    too_hard = 0
    for name, definition in listing.definitions.items():
        if known.get(name) == definition:
            continue
        if too_hard >= MAX_TOO_HARD:
            unusable[name] = f"it was not looked at: {too_hard} others take too long to check"
            continue
        try:
            await loop.run_in_executor(CHECK_EXECUTOR, JsonSchema({"type": "object", **definition.parameters}).compile)
        except BadInput as error:
            unusable[name] = str(error)
            too_hard += isinstance(error, SchemaTooHard)
    kept = {name: one for name, one in listing.definitions.items() if name not in unusable}
    told = [f"{shorten_text(name, 100)!r} cannot be used: {reason}" for name, reason in unusable.items()]
    return listing._replace(definitions=kept, left_out=(*listing.left_out, *told))


def _list_remarks(names: Sequence[str], settings: McpServerSettings) -> Iterator[str]:
    """What matches none of these names: misspelt, it would leave in what is to be left out."""
    globs = {"include": settings.include, "exclude": settings.exclude, "effects": tuple(settings.effects)}
    for key, patterns in globs.items():
        for pattern in patterns:
            matches = pattern.__eq__ if key == "effects" else Glob(pattern).matches
            if pattern != "*" and not any(map(matches, names)):
                hint = did_you_mean(pattern, names)
                yield " ".join(filter(None, (f"`{key}` has {pattern!r}, and no tool of it is called so.", hint)))
