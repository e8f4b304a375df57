"""Tools that one command declares and another runs (S38).

    discovery_command          prints the declarations: a JSON array of them, bare or wrapped in `functionDeclarations`
    call_command NAME          gets the arguments as JSON on standard input; what it prints is the result

Both are bounded in time and output and end with their process trees. A discovery that fails affects no other source.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from pydantic import AliasChoices, Field, JsonValue, ValidationError, field_validator, model_validator

from holdfast.activities.process.command import Command, build_environment, describe_exit_code, run_command
from holdfast.activities.process.output_store import OutputStore
from holdfast.activities.registry.arguments import strip_invisible
from holdfast.activities.supervision.command_call import call_command
from holdfast.config.schema import DiscoverySettings
from holdfast.domain.approvals.approval import Confirmation
from holdfast.domain.base import Data, describe_problems
from holdfast.domain.calls.tool import Effect, Invocation, Run, Tool, ToolFailure
from holdfast.domain.content import Result
from holdfast.errors import BadInput
from holdfast.util.text import remove_invisible, shorten_text, strip_controls

OUTPUT_LIMIT = 4_000_000
"""Bytes that a discovery may print."""
TOOLS_LIMIT = 1_000
ERRORS_KEPT = 2_000
"""Bytes that are kept of the end of its standard error."""
_TYPES = {"OBJECT", "ARRAY", "STRING", "NUMBER", "INTEGER", "BOOLEAN", "NULL"}
_WRAPPERS = ("functionDeclarations", "function_declarations")


class DiscoveredDeclaration(Data):
    """One declaration, with any of the names in use for its fields."""

    name: str
    description: str = ""
    display_name: str | None = Field(
        default=None, validation_alias=AliasChoices("display_name", "displayName", "title")
    )
    parameters: dict[str, JsonValue] = Field(
        default_factory=dict,
        validation_alias=AliasChoices(
            "parameters", "parametersJsonSchema", "parameters_json_schema", "inputSchema", "input_schema"
        ),
    )
    effect: Effect | None = None

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, value: Any) -> Any:
        """A null counts as left out: some print `"parameters": null` for a tool without any."""
        return {key: given for key, given in value.items() if given is not None} if isinstance(value, dict) else value

    @field_validator("parameters")
    @classmethod
    def _lower_types(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        return {key: _lower_schema(given, key) for key, given in value.items()}


def _lower_schema(value: JsonValue, key: str = "") -> JsonValue:
    """The schema with its types in lower case: some APIs write `"type": "OBJECT"`."""
    if isinstance(value, dict):
        return {name: _lower_schema(given, name) for name, given in value.items()}
    if isinstance(value, list):
        return [_lower_schema(given, key if key == "type" else "") for given in value]
    return value.lower() if key == "type" and isinstance(value, str) and value in _TYPES else value


async def discover_tools(settings: DiscoverySettings, outputs: OutputStore) -> list[Tool | BadInput]:
    """Run a discovery: the tools that it declares, and a BadInput for each invalid declaration.

    Raises BadInput when the command fails or does not print declarations.
    """
    found = read_declarations(await _run_discovery(settings))
    return [item if isinstance(item, BadInput) else DiscoveredTool(settings, item, outputs) for item in found]


def read_declarations(text: str) -> list[DiscoveredDeclaration | BadInput]:
    """The declarations that a discovery printed, and a BadInput for each invalid one.

    Raises BadInput when it did not print declarations at all.
    """
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"it printed no JSON ({shorten_text(str(error), 200)}), but {shorten_text(text.strip(), 80)!r}"
        ) from None
    found = list(_unwrap_items(value))
    if len(found) > TOOLS_LIMIT:
        raise BadInput(f"it declares {len(found):,} tools; at most {TOOLS_LIMIT:,} are taken")
    return [_parse_declaration(item, place) for place, item in enumerate(found, start=1)]


def _refuse_constant(name: str) -> None:
    """Python parses NaN and Infinity; no digest could be made of a declaration that holds one."""
    raise ValueError(f"{name} is not JSON")


def _unwrap_items(value: Any) -> Iterator[Any]:
    """The declarations in arrays, `functionDeclarations`, `tools` and `{"type": "function", …}`."""
    if isinstance(value, list):
        for item in value:
            yield from _unwrap_items(item) if isinstance(item, dict) else (item,)
        return
    if not isinstance(value, dict):
        raise BadInput("it must print a JSON array of declarations")
    wrapped = [value[key] for key in _WRAPPERS if isinstance(value.get(key), list)]
    if wrapped:
        yield from (item for items in wrapped for item in items)
    elif isinstance(value.get("tools"), list):
        yield from _unwrap_items(value["tools"])
    else:
        yield value["function"] if isinstance(value.get("function"), dict) else value


def _parse_declaration(item: Any, place: int) -> DiscoveredDeclaration | BadInput:
    try:
        return DiscoveredDeclaration.model_validate(item)
    except ValidationError as error:
        return BadInput(f"declaration {place} cannot be used: {describe_problems(error, 'declaration', 3)}")


async def _run_discovery(settings: DiscoverySettings) -> str:
    """Run the discovery command and return what it printed; BadInput when it fails."""
    printed, errors = bytearray(), bytearray()
    too_much = asyncio.Event()

    def add_output(data: bytes) -> None:
        if len(printed) > OUTPUT_LIMIT:
            too_much.set()
        else:
            printed.extend(data)

    def add_errors(data: bytes) -> None:
        errors.extend(data)
        del errors[:-ERRORS_KEPT]

    command = Command(
        words=settings.discovery_command,
        directory=Path(settings.folder),
        seconds=settings.timeout_seconds,
        environment=build_environment(settings.environment),
    )
    key = f"discovery/{settings.name}/{uuid4().hex}"
    try:
        code = await _run_unless(
            too_much, run_command(command, key, output=add_output, errors=add_errors, on_start=lambda _: None)
        )
    except TimeoutError:
        raise BadInput(f"it took longer than {settings.timeout_seconds:g} seconds{_describe_errors(errors)}") from None
    except ToolFailure as failure:
        raise BadInput(str(failure)) from None
    if code is None or too_much.is_set():
        raise BadInput(f"it printed over {OUTPUT_LIMIT:,} bytes")
    if code != 0:
        raise BadInput(f"{describe_exit_code(code)}{_describe_errors(errors)}")
    if not printed.strip():
        raise BadInput(f"it printed nothing{_describe_errors(errors)}")
    return printed.decode("utf-8-sig", "replace")


async def _run_unless(event: asyncio.Event, work: Coroutine[Any, Any, int]) -> int | None:
    """The result of `work`; None when the event came first, and `work` has been stopped."""
    working, waiting = asyncio.create_task(work), asyncio.create_task(event.wait())
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        waiting.cancel()
        working.cancel()
        await asyncio.wait({working})


def _describe_errors(printed: bytearray) -> str:
    text = strip_controls(printed.decode("utf-8", "replace")).strip()
    return f"; it said: {text}" if text else ""


class DiscoveredTool(Tool):
    """A tool that one command declares and another runs."""

    checks_quickly = True

    live_output = True

    def __init__(self, settings: DiscoverySettings, declared: DiscoveredDeclaration, outputs: OutputStore) -> None:
        self.name = declared.name
        self.display_name = declared.display_name
        self.description = remove_invisible(declared.description or f"{declared.name}, a tool of {settings.name}")
        self.effect = declared.effect or settings.effect
        self.timeout_seconds = settings.call_timeout_seconds + 30
        self.Parameters = {"type": "object", **strip_invisible(declared.parameters)}
        self._settings = settings
        self._outputs = outputs

    def build(self, arguments: dict[str, Any], workspace: Path) -> Invocation:
        """Bind the arguments."""
        command = Command(
            words=(*self._settings.call_command, self.name),
            directory=Path(self._settings.folder),
            seconds=self._settings.call_timeout_seconds,
            environment=build_environment(self._settings.environment),
            input=json.dumps(arguments).encode(),
        )
        return _CommandInvocation(self, arguments, command, self._outputs)


class _CommandInvocation(Invocation):
    def __init__(self, tool: DiscoveredTool, arguments: dict[str, Any], command: Command, outputs: OutputStore) -> None:
        self._tool = tool
        self._arguments = arguments
        self._command = command
        self._outputs = outputs

    def describe(self) -> str:
        return f"{self._tool.display_name or self._tool.name} {shorten_text(json.dumps(self._arguments), 200)}"

    def is_concurrency_safe(self) -> bool:
        return self._tool.effect is Effect.READ

    async def should_confirm(self) -> Confirmation | None:
        if self._tool.effect is Effect.READ:
            return None
        return Confirmation(kind="exec", title=self.describe(), command=shlex.join(self._command.words))

    async def execute(self, run: Run) -> Result:
        return await call_command(self._command, run, self._outputs, errors_apart=True)
