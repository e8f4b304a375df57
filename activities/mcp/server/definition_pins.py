"""The pinned definitions of tools: those that a person approved, and those that were seen first.

A server may change what a tool says and does under the name that was approved. So a definition is pinned when it is
first seen; a call under another one is asked about, whatever a rule or a grant says, and pins it. A tool without a pin
is asked about as well: a server that could make us forget could change what it likes. One file per server in the data
folder, for all workers of a host.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from pydantic import AwareDatetime, Field, JsonValue, ValidationError

from holdfast.activities.mcp.server.definitions import Definition, find_effect, is_destructive, is_open_world
from holdfast.config.mcp_servers_file import load_configured
from holdfast.config.schema import McpSettings
from holdfast.domain.base import Data
from holdfast.domain.calls.tool import Effect
from holdfast.errors import BadInput
from holdfast.util.mcp_names import build_prefix, build_tool_name
from holdfast.util.private_files import lock_file, replace_private
from holdfast.util.redaction import Redacted
from holdfast.util.text import shorten_text

SIZE_LIMIT = 24_000_000
"""Bytes of the file of one server: three times what it may list at once."""
TOOLS_LIMIT = 5_000
LOCK_SECONDS = 5.0
PIN_EXECUTOR = ThreadPoolExecutor(1, thread_name_prefix="holdfast-mcp-tools")
"""A thread for writing files: another process may hold the lock for seconds."""

_LOGGER = logging.getLogger(__name__)


class PinnedDefinition(Data):
    """A definition under which calls have run, and since when."""

    definition: Definition
    since: AwareDatetime
    approved: bool = False
    """A call under it was approved."""


class _PinFile(Data):
    tools: dict[str, PinnedDefinition] = Field(default_factory=dict)
    lost: bool = False
    """The file was damaged once: a tool without a pin may have had one, so none counts as seen for the first time."""


class DefinitionChange(NamedTuple):
    """How a definition differs from its pin."""

    sentence: str
    before: Definition | None = None
    after: Definition | None = None

    @property
    def diff(self) -> str:
        """The diff, if both definitions are known."""
        return diff_definitions(self.before, self.after) if self.before and self.after else ""


class PinnedDefinitions:
    """The pins of one server."""

    def __init__(self, folder: Path, server: str, hide: Callable[[Definition], Definition] = lambda one: one) -> None:
        """`hide` removes secrets: a value may have become one after it was written."""
        self._hide = hide
        self._file = folder / f"{server}.json"
        self._file_stamp: tuple[int, int, int] | None = None
        self._known: _PinFile | None = _PinFile()

    def find_change(self, definition: Definition) -> DefinitionChange | None:
        """Return what a person should see before a call of this tool runs; None if it equals its pin."""
        known = self._read_file()
        if known is None:
            return DefinitionChange(f"The approved definitions of this server cannot be read: {self._file} is damaged.")
        pin = known.tools.get(definition.name)
        if pin is None:
            why = "was lost with a damaged file" if known.lost else "could not be stored"
            return DefinitionChange(f"The earlier definition of this tool {why}, so it may have changed.")
        if (before := self._hide(pin.definition)) == definition:
            return None
        when = f"{'it was last approved' if pin.approved else 'it was first seen'} ({pin.since:%Y-%m-%d %H:%M} UTC)"
        sentence = f"The server has changed this tool since {when}: {describe_definition_change(before, definition)}."
        return DefinitionChange(sentence, before, definition)

    @property
    def definitions(self) -> tuple[Definition, ...]:
        """All pinned definitions; empty if the file cannot be read."""
        known = self._read_file()
        return tuple(self._hide(pin.definition) for pin in known.tools.values()) if known else ()

    def pin_new(self, definitions: Iterable[Definition]) -> None:
        """Pin the definitions that have no pin, if there is room. Blocks: use `PIN_EXECUTOR`."""
        listed = {one.name: one for one in definitions}
        known = self._read_file()
        if known is None or known.lost or known.tools.keys() >= listed.keys():
            return
        self._change_file(lambda tools: {**{name: _build_pin(one) for name, one in listed.items()}, **tools}, listed)

    def approve(self, definition: Definition) -> None:
        """Pin a definition as approved. Blocks. BadInput when it cannot be written."""
        known = self._read_file()
        pin = known.tools.get(definition.name) if known else None
        if pin is None or not pin.approved or pin.definition != definition:
            new = _build_pin(definition, approved=True)
            self._change_file(lambda tools: {**tools, definition.name: new}, [definition.name])

    def _read_file(self) -> _PinFile | None:
        """The content of the file, read again only after a change; None when it is damaged."""
        seen = _read_stamp(self._file)
        if seen is None or seen != self._file_stamp:
            self._known, self._file_stamp = _load_file(self._file), seen
        return self._known

    def _change_file(
        self, change: Callable[[dict[str, PinnedDefinition]], dict[str, PinnedDefinition]], needed: Collection[str]
    ) -> None:
        """Change the file, one process at a time. BadInput when it cannot be written."""
        with lock_file(self._file, LOCK_SECONDS):
            before = _load_file(self._file)
            lost = before is None or before.lost
            tools = change(before.tools if before else {})
            replace_private(self._file, _encode_file(_PinFile(tools=tools, lost=lost), needed, self._file))


async def write_in_background(work: Callable[[], None]) -> None:
    """Write in a thread of its own. A failure is logged, and the tool is asked about again."""
    try:
        await asyncio.get_running_loop().run_in_executor(PIN_EXECUTOR, work)
    except BadInput as error:
        _LOGGER.warning("The definitions of a server's tools were not stored: %s", Redacted(error))


def _encode_file(file: _PinFile, needed: Collection[str], path: Path) -> bytes:
    """The bytes of the file. When it is full, pins without an approval of tools that are gone are dropped."""
    data = file.model_dump_json().encode()
    if len(data) > SIZE_LIMIT or len(file.tools) > TOOLS_LIMIT:
        tools = {name: pin for name, pin in file.tools.items() if pin.approved or name in needed}
        data = _PinFile(tools=tools, lost=file.lost).model_dump_json().encode()
        if len(data) > SIZE_LIMIT or len(tools) > TOOLS_LIMIT:
            raise BadInput(f"{path} would exceed {TOOLS_LIMIT:,} tools or {SIZE_LIMIT:,} bytes")
    return data


def _build_pin(definition: Definition, *, approved: bool = False) -> PinnedDefinition:
    return PinnedDefinition(definition=definition, since=datetime.now(UTC), approved=approved)


def _read_stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _load_file(file: Path) -> _PinFile | None:
    try:
        return _PinFile.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return _PinFile()
    except (OSError, ValidationError):
        return None


class KnownTool(NamedTuple):
    """A tool of a server, by the settings and the pins of this host."""

    server: str
    name: str
    own_name: str
    effect: Effect
    open_world: bool
    destructive: bool
    met: bool
    """It has a pin: its server was connected here and had it."""


def find_known_tool(name: str, settings: McpSettings, folder: Path, server: str | None = None) -> KnownTool | None:
    """Find a tool by our name for it, or by its server and either name. None if no server can have it."""
    servers, _ = load_configured(settings)
    for called, one in servers.items():
        if called != server and not (server is None and name.startswith(build_prefix(called))):
            continue
        own = {build_tool_name(called, pin.name): pin for pin in PinnedDefinitions(folder, called).definitions}
        wanted = name if name.startswith(build_prefix(called)) else build_tool_name(called, name)
        known = own.get(wanted)
        met = known or Definition(name=wanted.removeprefix(build_prefix(called)))
        traits = (find_effect(met, one), is_open_world(met, one), is_destructive(met, one))
        return KnownTool(called, wanted, met.name, *traits, known is not None)
    return None


NAMES_SHOWN = 8
NAME_LIMIT = 60
COMPARE_LIMIT = 600
"""Lines that are compared one by one, which takes time by their square."""
LINES_SHOWN = 100


def describe_definition_change(before: Definition, after: Definition) -> str:
    """Describe the change in one line: `its description, the parameters path (new) and force (gone)`."""
    return ", ".join(_list_parts(before, after)) or "nothing"


def diff_definitions(before: Definition, after: Definition) -> str:
    """Format the change as a diff; of very long definitions the first removed and added lines."""
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
    """The first lines that occur on one side only."""
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
