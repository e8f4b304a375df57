"""`@tool` makes a tool from a typed function; its schema comes from the signature and the docstring.

    @tool(effect=Effect.READ)
    def count_words(text: str, least: int = 1) -> int:
        \"\"\"Count the words of a text.

        Args:
            text: The text.
            least: How long a word must be to count.
        \"\"\"
        return sum(len(word) >= least for word in text.split())

An `async` function runs on the worker's event loop, any other in a thread of its own. A thread cannot be stopped, so a
stop waits for it. A parameter annotated `Run` or `Run | None` is not in the schema: it gets the `Run` of the call. A
call needs an approval unless the effect is `read`; `confirm` changes that.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast, overload

from pydantic import BaseModel, TypeAdapter

from holdfast.domain.approvals.approval import Confirmation
from holdfast.domain.calls.tool import AbortsSiblings, DecisionNotice, Effect, Interrupt, Invocation, Retries, Run, Tool
from holdfast.domain.content import BlobPart, DataPart, Part, Result, TextPart
from holdfast.errors import BadInput
from holdfast.function_tools.signature import Function, read_signature
from holdfast.util.suggestions import did_you_mean
from holdfast.util.text import shorten_text

_PARTS = (TextPart, DataPart, BlobPart)


class ToolOptions(TypedDict, total=False):
    """The options of `@tool` that are attributes of `Tool`. `Tool` and `Traits` explain them."""

    display_name: str | None
    interrupt: Interrupt
    aborts_siblings: AbortsSiblings
    live_output: bool
    markdown: bool
    task_queue: str | None
    on_host: bool
    asks: bool
    open_world: bool
    destructive: bool
    edits: str | None
    checks_quickly: bool
    retries: Retries | None
    timeout_seconds: float
    heartbeat_seconds: float


ConfirmAnswer = bool | str | Confirmation | None
Confirm = bool | str | Callable[..., ConfirmAnswer | Awaitable[ConfirmAnswer]]
ConcurrencySafe = bool | Callable[..., bool]
OnDecision = Callable[[DecisionNotice], Awaitable[None] | None]


@overload
def tool(function: Function, /) -> FunctionTool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = Effect.ONCE,
    confirm: Confirm | None = None,
    concurrency_safe: ConcurrencySafe | None = None,
    on_decision: OnDecision | None = None,
    **traits: Unpack[ToolOptions],
) -> Callable[[Function], FunctionTool]: ...


def tool(
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = Effect.ONCE,
    confirm: Confirm | None = None,
    concurrency_safe: ConcurrencySafe | None = None,
    on_decision: OnDecision | None = None,
    **traits: Unpack[ToolOptions],
) -> Any:
    """Make a tool from a function: `@tool`, or `@tool(effect=Effect.READ, …)`.

    `name`, `description`: None takes those of the function.
    `effect`: the effect of a call, which decides whether it may be repeated (S31).
    `confirm`: whether to ask a person before a call, or the title of the question; or a function of the arguments that
    returns either. None asks unless the effect is `read`.
    `concurrency_safe`: may a call run at the same time as others? A bool, or a function of the arguments. None: if the
    effect is `read`.
    `on_decision`: called with the decision that lets a call run, before it runs (`DecisionNotice` says which).
    `traits`: attributes of `Tool`.

    Raises BadInput when the signature of the function cannot be that of a tool.
    """

    def build_tool(found: Function) -> FunctionTool:
        return FunctionTool(
            found,
            name=name,
            description=description,
            effect=effect,
            confirm=confirm,
            concurrency_safe=concurrency_safe,
            on_decision=on_decision,
            **traits,
        )

    return build_tool(function) if function else build_tool


class FunctionTool(Tool):
    """A tool made from a function, by `@tool`. Calling it calls the function."""

    def __init__(
        self,
        function: Function,
        *,
        name: str | None = None,
        description: str | None = None,
        effect: Effect = Effect.ONCE,
        confirm: Confirm | None = None,
        concurrency_safe: ConcurrencySafe | None = None,
        on_decision: OnDecision | None = None,
        **traits: Unpack[ToolOptions],
    ) -> None:
        _check_function(function, concurrency_safe)
        signature = read_signature(function)
        self.function = function
        self.name = name or function.__name__
        self.description = description or signature.description or self.name
        self.effect = effect
        self.confirm: Confirm = effect is not Effect.READ if confirm is None else confirm
        self.safe: ConcurrencySafe = effect is Effect.READ if concurrency_safe is None else concurrency_safe
        self.checks_quickly = not inspect.iscoroutinefunction(confirm)  # what awaits something may take long
        self.on_decision = on_decision
        self.Parameters = signature.parameters
        self.runs = signature.runs
        for trait, value in traits.items():
            if trait not in ToolOptions.__annotations__:
                known = did_you_mean(trait, ToolOptions.__annotations__)
                raise BadInput(f"{trait!r} is not an option of a tool. {known}".rstrip())
            setattr(self, trait, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self.function(*args, **kwargs)

    def build(self, arguments: BaseModel, workspace: Path) -> Invocation:
        """See the base class."""
        fields = type(arguments).model_fields
        return _FunctionInvocation(self, {str(field.alias): getattr(arguments, name) for name, field in fields.items()})


class _FunctionInvocation(Invocation):
    def __init__(self, tool: FunctionTool, arguments: Mapping[str, Any]) -> None:
        self._tool = tool
        self._arguments = arguments

    def describe(self) -> str:
        shown = ", ".join(f"{name}={shorten_text(repr(value), 80)}" for name, value in self._arguments.items())
        return f"{self._tool.display_name or self._tool.name}({shown})"

    def is_concurrency_safe(self) -> bool:
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

    async def on_decision(self, decision: DecisionNotice) -> None:
        result = self._tool.on_decision(decision) if self._tool.on_decision else None
        if inspect.isawaitable(result):
            await result

    async def execute(self, run: Run) -> Result:
        given = {**self._arguments, **dict.fromkeys(self._tool.runs, run)}
        function = self._tool.function
        made = function(**given) if inspect.iscoroutinefunction(function) else await run_in_thread(function, given)
        return build_result(await made if inspect.isawaitable(made) else made)


def build_result(made: object) -> Result:
    """Build a result from what a function returned: text, parts and bytes as they are, other values as data.

    The call has run, so every value becomes a result.
    """
    if isinstance(made, Result):
        return made
    if isinstance(made, _PARTS):
        return Result(parts=(made,))
    if isinstance(made, tuple | list) and made and all(isinstance(item, _PARTS) for item in made):
        return Result(parts=tuple(cast("list[Part]", made)))
    if made is None:
        return Result.from_text("(done)")
    if isinstance(made, str):
        return Result.from_text(made)
    if isinstance(made, bytes | bytearray):
        return Result(parts=(BlobPart.from_bytes(bytes(made), "application/octet-stream"),))
    with suppress(Exception):
        value = TypeAdapter(type(made)).dump_python(made, mode="json", warnings=False)
        return Result(parts=(DataPart(value=value),))
    with suppress(Exception):
        return Result.from_text(str(made))
    return Result.from_text(f"(a {type(made).__name__} that cannot be shown)")


async def run_in_thread(function: Function, arguments: Mapping[str, Any]) -> Any:
    """Call a function in a thread, and wait for its end even when cancelled: a thread cannot be stopped."""
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


def _check_function(function: Function, concurrency_safe: object) -> None:
    if not inspect.isroutine(function):
        raise BadInput(f"{function!r} cannot be a tool: it is not a function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadInput(f"{function.__name__!r} cannot be a tool: it yields; return a list, or write to the run")
    if inspect.iscoroutinefunction(concurrency_safe):
        raise BadInput(f"{function.__name__!r} cannot be a tool: its concurrency_safe is async, and nobody awaits it")
