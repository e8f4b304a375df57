"""The decorators that mark a function as a hook, for packages: an entry point names it, the mark has its settings.

    @before_tool(tools=["shell"])
    def look_twice(call: BeforeTool) -> dict[str, str] | None: ...

The function is returned unchanged. Where a settings file names a function, the file's settings count, and no mark is
needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, overload

from pydantic import ValidationError

from holdfast.config.schema import HookTraits, When
from holdfast.domain.base import describe_problems
from holdfast.errors import BadInput

Function = TypeVar("Function", bound=Callable[[Any], Any])
FailureAction = Literal["deny", "ignore"]

_MARK = "__holdfast_hook__"


@overload
def before_tool(function: Function, /) -> Function: ...


@overload
def before_tool(
    *, tools: tuple[str, ...] | list[str] = ("*",), timeout_seconds: float = 10, on_failure: FailureAction = "deny"
) -> Callable[[Function], Function]: ...


def before_tool(
    function: Function | None = None,
    /,
    *,
    tools: tuple[str, ...] | list[str] = ("*",),
    timeout_seconds: float = 10,
    on_failure: FailureAction = "deny",
) -> Any:
    """Mark a function as a hook before a call: `@before_tool`, or `@before_tool(tools=["shell"])`.

    `tools`: names of the tools it is for, `*` for any text. `timeout_seconds`: how long it may take. `on_failure`:
    whether a hook that fails or takes too long denies the call, or is ignored. Returns the function. BadInput for an
    option that is not valid.
    """
    return _mark_function(When.BEFORE, function, tools, timeout_seconds, on_failure)


@overload
def after_tool(function: Function, /) -> Function: ...


@overload
def after_tool(
    *, tools: tuple[str, ...] | list[str] = ("*",), timeout_seconds: float = 10, on_failure: FailureAction = "deny"
) -> Callable[[Function], Function]: ...


def after_tool(
    function: Function | None = None,
    /,
    *,
    tools: tuple[str, ...] | list[str] = ("*",),
    timeout_seconds: float = 10,
    on_failure: FailureAction = "deny",
) -> Any:
    """Mark a function as a hook after a call: `@after_tool`, or `@after_tool(on_failure="ignore")`.

    `tools`: names of the tools it is for, `*` for any text. `timeout_seconds`: how long it may take. `on_failure`:
    whether a hook that fails or takes too long denies the call, or is ignored. Returns the function. BadInput for an
    option that is not valid.
    """
    return _mark_function(When.AFTER, function, tools, timeout_seconds, on_failure)


def find_mark(function: object) -> HookTraits | None:
    """The settings that a function was marked with; None when it was not."""
    found = getattr(function, _MARK, None)
    return found if isinstance(found, HookTraits) else None


def _mark_function(
    when: When, function: Any, tools: Sequence[str], timeout_seconds: float, on_failure: FailureAction
) -> Any:
    given = {"tools": tools, "timeout_seconds": timeout_seconds, "on_failure": on_failure}
    try:
        traits = HookTraits.model_validate({"when": when, **given})
    except ValidationError as error:
        raise BadInput(f"a hook cannot be marked like this: {describe_problems(error, 'hook')}") from None

    def set_mark(found: Any) -> Any:
        setattr(found, _MARK, traits)
        return found

    return set_mark(function) if function is not None else set_mark
