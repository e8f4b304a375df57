"""`before_tool` and `after_tool`: they mark a function as a hook, for packages whose entry point names it.

    @before_tool(tools=["shell"])
    def look_twice(call: BeforeTool) -> dict[str, str] | None: ...

The function is returned unchanged. Where a settings file names a function, the file's settings count, and no mark is
needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar, overload

from pydantic import ValidationError

from holdfast.config.schema import HookTraits, When
from holdfast.domain.base import describe_problems
from holdfast.errors import BadInput

Function = TypeVar("Function", bound=Callable[[Any], Any])
FailureAction = Literal["deny", "ignore"]

_MARK = "__holdfast_hook__"


class HookDecorator:
    """Marks a function as a hook: `@before_tool`, or `@before_tool(tools=["shell"])`."""

    def __init__(self, when: When) -> None:
        self._when = when
        self.__name__ = f"{when.value}_tool"

    @overload
    def __call__(self, function: Function, /) -> Function: ...

    @overload
    def __call__(
        self,
        /,
        *,
        tools: tuple[str, ...] | list[str] = ("*",),
        timeout_seconds: float = 10,
        on_failure: FailureAction = "deny",
    ) -> Callable[[Function], Function]: ...

    def __call__(
        self,
        function: Any = None,
        /,
        *,
        tools: tuple[str, ...] | list[str] = ("*",),
        timeout_seconds: float = 10,
        on_failure: FailureAction = "deny",
    ) -> Any:
        """Return the function, marked. BadInput for an option that is not valid."""
        given = {"when": self._when, "tools": tools, "timeout_seconds": timeout_seconds, "on_failure": on_failure}
        try:
            traits = HookTraits.model_validate(given)
        except ValidationError as error:
            raise BadInput(f"a hook cannot be marked like this: {describe_problems(error, 'hook')}") from None

        def set_mark(found: Any) -> Any:
            setattr(found, _MARK, traits)
            return found

        return set_mark if function is None else set_mark(function)


before_tool = HookDecorator(When.BEFORE)
"""Mark a function as a hook before a call: `@before_tool`, or `@before_tool(tools=["shell"])`.

`tools`: names of the tools it is for, `*` for any text. `timeout_seconds`: how long it may take. `on_failure`: whether
a hook that fails or takes too long denies the call, or is ignored. Returns the function. BadInput for an invalid
option.
"""
after_tool = HookDecorator(When.AFTER)
"""Mark a function as a hook after a call: `@after_tool`, or `@after_tool(on_failure="ignore")`.

The options are those of `before_tool`.
"""


def find_mark(function: object) -> HookTraits | None:
    """The settings that a function was marked with; None when it was not."""
    found = getattr(function, _MARK, None)
    return found if isinstance(found, HookTraits) else None
