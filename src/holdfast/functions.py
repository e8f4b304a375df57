"""Tools from functions: `@tool` makes one from a typed function, its schema from the signature and the docstring.

    @tool(effect=Effect.READ)
    def count_words(text: str, least: int = 1) -> int:
        \"\"\"Count the words of a text.

        Args:
            text: The text.
            least: How long a word must be to count.
        \"\"\"
        return sum(len(word) >= least for word in text.split())

An `async` function runs on the worker's event loop, any other in a thread of its own, which cannot be stopped: a stop
waits for it. A parameter annotated `Run` or `Run | None` is not the model's: it is given the run. A call asks for
approval unless the function merely reads; `confirm` says otherwise.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints, overload

import docstring_parser
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.fields import FieldInfo

from holdfast.approvals import Confirmation
from holdfast.content import BlobPart, DataPart, Part, Result, TextPart, shorten
from holdfast.errors import BadInput
from holdfast.suggestions import did_you_mean
from holdfast.tools import Effect, Interrupt, Invocation, Run, Tool

_PARTS = (TextPart, DataPart, BlobPart)
_TRAITS = {
    "display_name",
    "interrupt",
    "aborts_siblings",
    "live_output",
    "markdown",
    "task_queue",
    "timeout_seconds",
    "heartbeat_seconds",
}
Function = Callable[..., Any]
Answer = bool | str | Confirmation | None
Confirm = bool | str | Callable[..., Answer | Awaitable[Answer]]
Safe = bool | Callable[..., bool]


@overload
def tool(function: Function, /) -> FunctionTool: ...


@overload
def tool(
    *,
    name: str | None = None,
    display_name: str | None = None,
    description: str | None = None,
    effect: Effect = Effect.ONCE,
    confirm: Confirm | None = None,
    concurrency_safe: Safe | None = None,
    interrupt: Interrupt = Interrupt.BLOCK,
    aborts_siblings: bool = False,
    live_output: bool = False,
    markdown: bool = False,
    task_queue: str | None = None,
    timeout_seconds: float = 600,
    heartbeat_seconds: float = 10,
) -> Callable[[Function], FunctionTool]: ...


def tool(function: Function | None = None, /, **options: Any) -> Any:
    """Make a tool from a function: `@tool`, or `@tool(effect=Effect.READ, …)`. BadInput when its types do not do."""
    return FunctionTool(function) if function else lambda found: FunctionTool(found, **options)


class FunctionTool(Tool):
    """A tool made from a function. Calling it calls the function."""

    def __init__(
        self,
        function: Function,
        *,
        name: str | None = None,
        description: str | None = None,
        effect: Effect = Effect.ONCE,
        confirm: Confirm | None = None,
        concurrency_safe: Safe | None = None,
        **traits: Any,
    ) -> None:
        _check_function(function, concurrency_safe)
        documented = docstring_parser.parse(inspect.getdoc(function) or "")
        self.function = function
        self.name = name or function.__name__
        self.description = description or _description(documented) or self.name
        self.effect = effect
        self.confirm: Confirm = effect is not Effect.READ if confirm is None else confirm
        self.safe: Safe = effect is Effect.READ if concurrency_safe is None else concurrency_safe
        self.Parameters, self.run_parameters = _parameters(function, documented)
        for trait, value in traits.items():
            if trait not in _TRAITS:
                raise BadInput(f"{trait!r} is not an option of a tool. {did_you_mean(trait, _TRAITS)}".rstrip())
            setattr(self, trait, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself."""
        return self.function(*args, **kwargs)

    def build(self, arguments: BaseModel, workspace: Path) -> Invocation:
        """Bind the arguments."""
        fields = type(arguments).model_fields
        return _Calling(self, {str(field.alias): getattr(arguments, name) for name, field in fields.items()})


class _Calling(Invocation):
    def __init__(self, tool: FunctionTool, arguments: Mapping[str, Any]) -> None:
        self._tool = tool
        self._arguments = arguments

    def describe(self) -> str:
        shown = ", ".join(f"{name}={shorten(repr(value), 80)}" for name, value in self._arguments.items())
        return f"{self._tool.display_name or self._tool.name}({shown})"

    def concurrency_safe(self) -> bool:
        safe = self._tool.safe
        return (safe(**self._arguments) if callable(safe) else safe) is True

    async def should_confirm(self) -> Confirmation | None:
        wanted = self._tool.confirm
        asked = wanted(**self._arguments) if callable(wanted) else wanted
        if inspect.isawaitable(asked):
            asked = await asked
        if not asked or isinstance(asked, Confirmation):
            return asked or None
        return Confirmation(kind="info", title=asked if isinstance(asked, str) else self.describe())

    async def execute(self, run: Run) -> Result:
        given = {**self._arguments, **dict.fromkeys(self._tool.run_parameters, run)}
        function = self._tool.function
        made = function(**given) if inspect.iscoroutinefunction(function) else await in_thread(function, given)
        return as_result(await made if inspect.isawaitable(made) else made)


def as_result(made: object) -> Result:
    """What a function gave back, as a result: text as text, bytes and parts as parts, what JSON can say as data.

    The call has run by now: whatever it gave back, it is a result.
    """
    if isinstance(made, Result):
        return made
    if isinstance(made, _PARTS):
        return Result(parts=(made,))
    if isinstance(made, tuple | list) and made and all(isinstance(item, _PARTS) for item in made):
        return Result(parts=tuple(cast("list[Part]", made)))
    if made is None:
        return Result.of("(done)")
    if isinstance(made, str):
        return Result.of(made)
    if isinstance(made, bytes | bytearray):
        return Result(parts=(BlobPart.of(bytes(made), "application/octet-stream"),))
    with suppress(Exception):
        value = TypeAdapter(type(made)).dump_python(made, mode="json", warnings=False)
        return Result(parts=(DataPart(value=value),))
    with suppress(Exception):
        return Result.of(str(made))
    return Result.of(f"(a {type(made).__name__} that cannot be shown)")


async def in_thread(function: Function, arguments: Mapping[str, Any]) -> Any:
    """Call a function in a thread of its own, and wait for its end even when stopped: nobody can stop a thread."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def report(set_outcome: Callable[[Any], None], value: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: the process ends
            loop.call_soon_threadsafe(set_outcome, value)

    def work() -> None:
        try:
            made = context.run(function, **arguments)
        except BaseException as error:
            wrapped = RuntimeError(f"{type(error).__name__}: {error}") if isinstance(error, StopIteration) else error
            report(done.set_exception, wrapped)
        else:
            report(done.set_result, made)

    threading.Thread(target=work, name=f"tool {function.__name__}", daemon=True).start()
    while not done.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(done)
    return done.result()


def _description(documented: docstring_parser.Docstring) -> str:
    return "\n\n".join(filter(None, (documented.short_description, documented.long_description)))


def _parameters(function: Function, documented: docstring_parser.Docstring) -> tuple[type[BaseModel], tuple[str, ...]]:
    """The model of a function's parameters, and the names of those that are given the run."""
    told = {item.arg_name: item.description or "" for item in documented.params}
    hints = _hints(function)
    fields: dict[str, Any] = {}
    runs: list[str] = []
    for name, parameter in _signature(function).parameters.items():
        _check(function, parameter, hints)
        if _is_run(hints[name]):
            runs.append(name)
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        words: dict[str, Any] = {"description": told[name]} if told.get(name) and not _described(hints[name]) else {}
        # By alias, since a parameter may be called as a model's own attribute is (`copy`, `schema`); and by a name that
        # no parameter has, since fields may be given by name as well.
        fields[f"given {name}"] = (hints[name], Field(default, alias=name, **words))
    try:
        model = create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)
        model.model_json_schema()
    except Exception as error:
        raise BadInput(f"no schema can be made for {function.__name__!r}: {error}") from error
    return model, tuple(runs)


def _signature(function: Function) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError as error:
        raise BadInput(f"{function.__name__!r} cannot be a tool: {error}") from error


def _hints(function: Function) -> dict[str, Any]:
    """The types of the parameters. What it returns may be a type that only a type checker knows."""
    written = {name: hint for name, hint in inspect.get_annotations(function).items() if name != "return"}
    known = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return get_type_hints(SimpleNamespace(__annotations__=written), known, include_extras=True)
    except Exception as error:
        raise BadInput(f"the types of {function.__name__!r} cannot be read: {error}") from error


def _is_run(hint: object) -> bool:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return hint is Run or (get_origin(hint) in (Union, UnionType) and Run in get_args(hint))


def _described(hint: object) -> bool:
    return get_origin(hint) is Annotated and any(
        isinstance(extra, FieldInfo) and extra.description for extra in get_args(hint)[1:]
    )


def _check_function(function: Function, concurrency_safe: object) -> None:
    if not inspect.isroutine(function):
        raise BadInput(f"{function!r} cannot be a tool: it is not a function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadInput(f"{function.__name__!r} cannot be a tool: it yields; return a list, or write to the run")
    if inspect.iscoroutinefunction(concurrency_safe):
        raise BadInput(f"{function.__name__!r} cannot be a tool: its concurrency_safe is async, and nobody awaits it")


def _check(function: Function, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> None:
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise BadInput(f"{function.__name__!r} cannot be a tool: parameter {parameter.name!r} is not given by name")
    if parameter.name not in hints:
        raise BadInput(f"{function.__name__!r} cannot be a tool: parameter {parameter.name!r} has no type")
