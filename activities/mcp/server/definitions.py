"""The definitions of a server's tools: read from its list, stored, compared and judged.

A definition is data of our own, the same whichever protocol version brought it. The effect of a tool is what the
settings say, or what a trusted server says; the tools of other servers count as `once`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import Field, JsonValue

from holdfast.activities.registry.arguments import JsonSchema
from holdfast.activities.registry.json_schema import CHECK_EXECUTOR, SchemaTooHard
from holdfast.config.schema import McpServerSettings
from holdfast.domain.base import Data
from holdfast.domain.calls.tool import Effect
from holdfast.errors import BadInput
from holdfast.util.globs import Glob
from holdfast.util.json_values import digest_canonical
from holdfast.util.mcp_names import READ_TOOLS
from holdfast.util.secrets import Secrets
from holdfast.util.suggestions import did_you_mean
from holdfast.util.text import exception_text, shorten_text

if TYPE_CHECKING:
    from mcp_types import Tool as ListedTool

TITLE_LIMIT = 100
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


class Definition(Data):
    """A tool as its server defines it."""

    name: str
    """The server's own name for it."""
    title: str | None = None
    description: str = ""
    parameters: dict[str, JsonValue] = Field(default_factory=dict)
    output: dict[str, JsonValue] | None = None
    """The JSON schema of its structured result."""
    annotations: dict[str, JsonValue] = Field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Changes with any part of it. ValueError when JSON cannot express it."""
        return digest_canonical(self.model_dump(mode="json"))

    @property
    def size(self) -> int:
        """Its length as JSON."""
        return len(self.model_dump_json())

    def get_hint(self, name: Literal["readOnlyHint", "idempotentHint", "openWorldHint"], default: bool) -> bool:
        """Return an annotation of the server, or the default that the protocol gives it."""
        value = self.annotations.get(name)
        return value if isinstance(value, bool) else default

    def hide_secrets(self, secrets: Secrets) -> Definition:
        """Replace secrets by their names, so that it stays the same when their values change."""
        fields: Any = self.model_dump(mode="json", exclude={"name"})
        shown: Any = secrets.hide_value(fields)
        return self if shown == fields else self.model_copy(update=shown)

    def format_lines(self) -> list[str]:
        """Format all of it as lines, for a diff."""
        parts: dict[str, JsonValue] = {
            "annotations": self.annotations,
            "parameters": self.parameters,
            "output": self.output,
        }
        words = {"name": self.name, "title": self.title or "", "description": self.description}
        lines = [f"{name}: {line}" for name, text in words.items() for line in text.splitlines() or [""]]
        for name, value in parts.items():
            text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
            lines += [f"{name}: {line}" for line in text.splitlines()]
        return lines


def build_definition(tool: ListedTool, secrets: Secrets) -> Definition:
    """Build the definition of a listed tool, without secrets. BadInput when the tool cannot be used."""
    if not tool.name:
        raise BadInput("a tool without a name")
    if (shown := secrets.hide(tool.name)) != tool.name:
        raise BadInput(f"the name {shown!r} contains a secret")
    if tool.execution is not None and tool.execution.task_support == "required":
        raise BadInput(f"{tool.name!r} runs only as an MCP task, which is not supported")
    given = tool.annotations.model_dump(by_alias=True, exclude_none=True, mode="json") if tool.annotations else {}
    title = tool.title or given.get("title")
    definition = Definition(
        name=tool.name,
        title=title if isinstance(title, str) else None,
        description=tool.description or "",
        parameters=tool.input_schema,
        output=tool.output_schema,
        annotations={name: given[name] for name in _HINTS if name in given},
    )
    return definition.hide_secrets(secrets)


def is_wanted(definition: Definition, settings: McpServerSettings) -> bool:
    """Whether the settings include this tool."""
    taken = any(Glob(pattern).matches(definition.name) for pattern in settings.include)
    return taken and not any(Glob(pattern).matches(definition.name) for pattern in settings.exclude)


class EffectJudgement(NamedTuple):
    """The effect of repeating a tool's calls, and its source."""

    effect: Effect
    because: str


def judge_effect(definition: Definition, settings: McpServerSettings) -> EffectJudgement:
    """Judge the effect of a tool by the settings, and by its annotations if its server is trusted."""
    if effect := settings.effects.get(definition.name):
        return EffectJudgement(effect, "`effects` in the settings says so")
    if not settings.trust:
        return EffectJudgement(Effect.ONCE, "the server is not trusted to say what its tools do")
    if definition.get_hint("readOnlyHint", False):
        return EffectJudgement(Effect.READ, "the server says so (readOnlyHint), and is trusted")
    if definition.get_hint("idempotentHint", False):
        return EffectJudgement(Effect.IDEMPOTENT, "the server says so (idempotentHint), and is trusted")
    return EffectJudgement(Effect.ONCE, "the server is trusted, and does not say that it may be repeated")


def find_effect(definition: Definition, settings: McpServerSettings) -> Effect:
    """The effect of a tool: see `judge_effect`."""
    return judge_effect(definition, settings).effect


def is_open_world(definition: Definition, settings: McpServerSettings) -> bool:
    """Whether a tool exchanges data with the outside; True unless a trusted server denies it."""
    return not settings.trust or definition.get_hint("openWorldHint", True)


def is_destructive(definition: Definition, settings: McpServerSettings) -> bool:
    """Whether its server says that it is destructive. That is believed of any server; silence means nothing."""
    return (
        definition.annotations.get("destructiveHint") is True and find_effect(definition, settings) is not Effect.READ
    )


MAX_TOO_HARD = 3
"""Schemas of one list that may take too long to compile, since others wait meanwhile."""
LIST_LIMIT = 8_000_000
"""Characters of all definitions of a server."""


class ToolListing(NamedTuple):
    """The usable tools of a list by their own names, and why others were left out."""

    definitions: Mapping[str, Definition]
    left_out: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    """Settings that match none of its tools."""


def build_listing(tools: Iterable[ListedTool], settings: McpServerSettings, secrets: Secrets) -> ToolListing:
    """Select the usable tools of a list. Two tools of one name are both left out: a call would be ambiguous."""
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
            left_out.append(f"its definitions have over {LIST_LIMIT:,} characters: the rest was not read")
            break
        if definition.name in found or definition.name in twice:
            twice.add(definition.name)
            found.pop(definition.name, None)
        elif is_wanted(definition, settings):
            found[definition.name] = definition
    left_out += [f"it lists {shorten_text(name, 100)!r} twice, so neither is used" for name in sorted(twice)]
    return ToolListing(found, tuple(left_out), tuple(_list_remarks([*names, *READ_TOOLS], settings)))


async def drop_unusable(listing: ToolListing, known: Mapping[str, Definition]) -> ToolListing:
    """Leave out the tools whose schemas cannot be compiled; those that equal a `known` one have been compiled."""
    loop = asyncio.get_running_loop()
    unusable: dict[str, str] = {}
    too_hard = 0
    for name, definition in listing.definitions.items():
        if known.get(name) == definition:
            continue
        if too_hard >= MAX_TOO_HARD:
            unusable[name] = f"its schema was not checked: {too_hard} others take too long to check"
            continue
        try:
            await loop.run_in_executor(CHECK_EXECUTOR, JsonSchema({"type": "object", **definition.parameters}).compile)
        except BadInput as error:
            unusable[name] = str(error)
            too_hard += isinstance(error, SchemaTooHard)
    usable = {name: one for name, one in listing.definitions.items() if name not in unusable}
    reasons = [f"{shorten_text(name, 100)!r} cannot be used: {reason}" for name, reason in unusable.items()]
    return listing._replace(definitions=usable, left_out=(*listing.left_out, *reasons))


def _list_remarks(names: Sequence[str], settings: McpServerSettings) -> Iterator[str]:
    """Settings that match no tool: a misspelt `exclude` would let in what it should leave out."""
    globs = {"include": settings.include, "exclude": settings.exclude, "effects": tuple(settings.effects)}
    for key, patterns in globs.items():
        for pattern in patterns:
            matches = pattern.__eq__ if key == "effects" else Glob(pattern).matches
            if pattern != "*" and not any(map(matches, names)):
                hint = did_you_mean(pattern, names)
                yield " ".join(filter(None, (f"`{key}` has {pattern!r}, which matches none of its tools.", hint)))
