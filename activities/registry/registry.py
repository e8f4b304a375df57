"""The tools of a worker by name, and the source of each.

Names are unique: a second tool of the same name is refused, and the message names both sources. A source without usable
tools (a package that does not load, a discovery that hangs) is recorded with the reason and costs no other source
anything.

Most sources bring their tools once. An MCP server replaces all of its own at a time, so that readers see them as they
were before or as they are after.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from pydantic import ValidationError

from holdfast.activities.registry.arguments import Schema, build_schema
from holdfast.domain.base import describe_problems
from holdfast.domain.calls.tool import Declaration, Effect, Tool
from holdfast.domain.content import NAME_LIMIT, CallError
from holdfast.errors import BadInput
from holdfast.util.json_values import digest_canonical
from holdfast.util.text import drop_surrogates, exception_text, shorten_text, strip_controls

BUILT_IN = "built in"
IN_CODE = "this program"
DISPLAY_LIMIT = 200
DESCRIPTION_LIMIT = 50_000
_QUEUE_NAME = re.compile(r"(?!/_sys/)[^\x00-\x1f\x7f]{1,1000}")
LONGEST_SECONDS = 7 * 24 * 3_600
_TOOL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]*")


@dataclass(frozen=True)
class RegisteredTool:
    """A registered tool, with the declaration that it made when it was registered: that one counts."""

    tool: Tool
    declaration: Declaration
    schema: Schema
    source: str


@dataclass(frozen=True)
class MissingSource:
    """A source that is not available now: which tools it would have, and how calls of these end."""

    prefix: str
    """The prefix of the names of its tools."""
    error: str
    """The type of the error that calls of its tools end with."""
    come: Callable[[], Awaitable[None]]
    """Wait a little for the source."""
    pending: bool = False
    """It is still expected, and is no problem to be shown."""


@dataclass(frozen=True)
class SourceProblem:
    """Why a source, or one tool of it, is not available."""

    source: str
    reason: str
    missing: MissingSource | None = None


class Registry:
    """Tools by name."""

    def __init__(self, tools: Iterable[Tool] = (), *, source: str = IN_CODE) -> None:
        self._entries: dict[str, RegisteredTool] = {}
        self._problems: list[SourceProblem] = []
        self._digest: str | None = None
        self.disabled: frozenset[str] = frozenset()
        """Names under which no source may register a tool later."""
        for tool in tools:
            self.add(tool, source)

    @property
    def problems(self) -> list[SourceProblem]:
        """The sources and tools that are not available, with the reasons."""
        return [problem for problem in self._problems if not (problem.missing and problem.missing.pending)]

    def explain_missing(self, name: str) -> CallError | None:
        """The error for a call of a tool whose source is not available now; None when no such source is known."""
        problem = self._find_missing_problem(name)
        if problem is None or problem.missing is None:
            return None
        message = f"{shorten_text(name, 100)!r} cannot be called now. {problem.source}: {problem.reason}"
        return CallError(type=problem.missing.error, message=message)

    def _find_missing_problem(self, name: str) -> SourceProblem | None:
        """The problem of the source that would have this tool."""
        return next((one for one in self._problems if one.missing and name.startswith(one.missing.prefix)), None)

    def is_source_missing(self, name: str) -> bool:
        """Is a source not available that may have a tool of this name, or one that matches this pattern?"""
        away = any(problem.missing for problem in self._problems)
        return self._find_missing_problem(name) is not None or ("*" in name and away)

    def add(self, tool: Tool, source: str = IN_CODE) -> None:
        """Register a tool; BadInput when it cannot be used or its name is taken."""
        self._add_entry(_build_entry(tool, source))

    def _add_entry(self, entry: RegisteredTool) -> None:
        name, source = entry.declaration.name, entry.source
        if other := self._entries.get(name):
            raise BadInput(f"two tools are called {name!r}, one from {other.source} and one from {source}: rename one")
        self._entries[name] = entry
        self._digest = None

    def replace_source(
        self, source: str, tools: Iterable[Tool], problems: Iterable[SourceProblem] = (), made: Registry | None = None
    ) -> None:
        """Replace all tools and problems of a source. A name that another source has stays with that.

        `made` has registered some of these tools before: building their entries takes long and is not repeated.
        """
        found = Registry()
        found._entries = {name: entry for name, entry in self._entries.items() if entry.source != source}
        for tool in tools:
            entry = self._entries.get(tool.name)
            if entry and entry.tool is tool:
                found._entries[tool.name] = entry
            elif tool.name not in self.disabled:
                found.offer(tool, source, made)
        self._problems = [problem for problem in self._problems if problem.source != source]
        self._problems += [*problems, *found.problems]
        self._entries, self._digest = found._entries, None

    def offer(self, tool: Tool, source: str, made: Registry | None = None) -> None:
        """Register a tool of other people, or record why it cannot be used. Never raises BadInput.

        `made`: see `replace_source`.
        """
        ready = made.get(tool.name) if made else None
        try:
            self._add_entry(ready if ready and ready.tool is tool else _build_entry(tool, source))
        except BadInput as error:
            self.refuse(source, str(error))

    def refuse(self, source: str, reason: str) -> None:
        """Record why a source, or one tool of it, is not available."""
        self._problems.append(build_problem(source, reason))

    def remove(self, name: str) -> bool:
        """Remove a tool; False when there was none."""
        self._digest = None
        return self._entries.pop(name, None) is not None

    def get(self, name: str) -> RegisteredTool | None:
        """The tool with this name, or None."""
        return self._entries.get(name)

    def is_unknown(self, name: str) -> bool:
        """Is there neither a tool of this name nor an unavailable source that may have it?"""
        return name not in self._entries and self._find_missing_problem(name) is None

    async def wait_for_tool(self, name: str) -> RegisteredTool | None:
        """The tool with this name, or None. Waits a little for a source that is not available yet."""
        if name not in self._entries and (problem := self._find_missing_problem(name)) and problem.missing:
            await problem.missing.come()
        return self._entries.get(name)

    @property
    def entries(self) -> list[RegisteredTool]:
        """All tools, sorted by name."""
        return [entry for _, entry in sorted(self._entries.items())]

    @property
    def digest(self) -> str:
        """Changes whenever any definition does."""
        if self._digest is None:
            self._digest = digest_canonical(self.definition_digests)
        return self._digest

    @property
    def definition_digests(self) -> dict[str, str]:
        """The digest of each tool's definition, by its name."""
        return {name: entry.declaration.digest for name, entry in self._entries.items()}


def build_problem(source: str, reason: str, missing: MissingSource | None = None) -> SourceProblem:
    """A problem whose texts are safe to print on a terminal."""
    return SourceProblem(_clean_text(source), _clean_text(shorten_text(reason, 1_000)), missing)


def _clean_text(text: str) -> str:
    return drop_surrogates(strip_controls(text))


def _build_entry(tool: Tool, source: str) -> RegisteredTool:
    """Declare and check a tool; BadInput when its declaration is not valid."""
    try:
        declaration = tool.build_declaration()
        declaration.model_dump_json()
        _ = declaration.digest  # a declaration without one must fail here, not the digest of the whole catalogue
        name = declaration.name
        if not _TOOL_NAME.fullmatch(name) or len(name) > NAME_LIMIT:
            raise BadInput(
                f"a tool's name has at most {NAME_LIMIT} letters, digits and _ . : / -, not {shorten_text(name, 100)!r}"
            )
        _check_limits(tool)
        _check_retries(tool)
        _check_traits(declaration)
        return RegisteredTool(tool, declaration, build_schema(tool, declaration), source)
    except BadInput as error:
        raise BadInput(f"a tool from {source} cannot be used: {error}") from error
    except (Exception, SystemExit) as error:
        words = describe_problems(error, "declaration") if isinstance(error, ValidationError) else exception_text(error)
        raise BadInput(f"the tool {_format_tool(tool)} from {source} has no valid declaration: {words}") from error


def _format_tool(tool: Tool) -> str:
    """The name of a tool, if it has one, and its class."""
    name, kind = getattr(tool, "name", None), type(tool).__qualname__
    return f"{name!r} ({kind})" if isinstance(name, str) else kind


def _check_traits(declaration: Declaration) -> None:
    """BadInput for what Temporal or a viewer could not take: it must fail here, not when a call runs."""
    queue, shown = declaration.traits.task_queue, declaration.display_name or ""
    if queue is not None and not _QUEUE_NAME.fullmatch(queue):
        raise BadInput(f"its task_queue cannot be one: {shorten_text(queue, 100)!r}")
    if len(shown) > DISPLAY_LIMIT or shown != strip_controls(shown):
        raise BadInput(f"its display_name has control characters, or over {DISPLAY_LIMIT} characters")
    if len(declaration.description) > DESCRIPTION_LIMIT:
        raise BadInput(f"its description is over {DESCRIPTION_LIMIT:,} characters")


def _check_retries(tool: Tool) -> None:
    retries = tool.retries
    if retries is None:
        return
    if tool.effect is Effect.ONCE:
        raise BadInput("it has `retries`, and must run once: only what reads or may be repeated is tried again")
    if not 2 <= retries.attempts <= 10 or not 0 <= retries.wait_seconds <= 60 or not retries.on:
        raise BadInput(
            "its `retries` need 2 to 10 attempts, a wait of 0 to 60 seconds, and which failures they are for"
        )


def _check_limits(tool: Tool) -> None:
    for limit in ("timeout_seconds", "heartbeat_seconds"):
        value = getattr(tool, limit)
        if not isinstance(value, int | float) or not 0 < value <= LONGEST_SECONDS:
            raise BadInput(f"its {limit} must be a number above 0 and at most {LONGEST_SECONDS:,}, not {value!r}")
