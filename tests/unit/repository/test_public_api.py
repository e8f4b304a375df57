"""The public API: the list of names, what their signatures mention, and that each states its contract."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from pydantic import BaseModel

import holdfast

SURFACE = """
AddCallsResult AfterAnswer AfterTool ApprovalId ApprovalView Approver AssistantMessage BadInput BatchResult BeforeAnswer
BeforeTool BlobPart Call CallError CallRequest Confirmation Confirming Context ContextChange Conversation DataPart
Decision DecisionAction DecisionNotice DecisionRefused DecisionResult Declaration Effect Event EventPage
FunctionResponse FunctionTool Grant Holdfast HoldfastError HoldfastPlugin InboxView Interrupt Invocation LiveOutput Mode
ModelChoice ModelReply ModelSettings NeedsAnswer NoWorker Offer OutcomeUnknown PayloadUnreadable QuestionAnswer Refused
RequestRefused Response Result Retries Run Schedule Scope ScriptedReply SendResult ServerUnavailable Session
SessionInput SessionResult SessionView Settings Signer Status StoreUnavailable StrictParameters TextPart Tool
ToolFailure ToolMessage ToolNotes Turn TurnInput TurnLimits TurnNotFound TurnResult TurnView UserMessage after_tool
before_tool build_function_response load_signer tool
""".split()  # noqa: SIM905 - easier to read than to index

CLIENT = ("Holdfast", "Turn", "Session")
REFUSABLE = """
Holdfast.start Holdfast.approve Holdfast.deny Holdfast.decide Holdfast.prepare_decision Turn.decide Turn.interrupt
Turn.withdraw Turn.set_mode Turn.revoke Turn.cancel Session.send Session.withdraw Session.interrupt Session.revoke
Session.wait_for_turn tool load_signer
""".split()  # noqa: SIM905
"""What a caller has to handle the refusal of; methods of `Turn` and `Session` have one more contract on their class."""
FORWARDING = {"FunctionTool.__call__", "Call.move_to"}
"""What hands its keywords on: to somebody else's function, and to the copy of a record."""


def list_functions() -> dict[str, Callable[..., Any]]:
    """Every public function and method of Holdfast's own, by its name."""
    found: dict[str, Callable[..., Any]] = {}
    for name in SURFACE:
        value = getattr(holdfast, name)
        if inspect.isfunction(value):
            found[name] = value
        for member, inner in inspect.getmembers(value) if inspect.isclass(value) else ():
            function = inner.fget if isinstance(inner, property) else getattr(inner, "__func__", inner)
            public = not member.startswith("_") or (member == "__call__" and not issubclass(value, BaseModel))
            if public and inspect.isfunction(function) and function.__module__.startswith("holdfast."):
                found[f"{name}.{member}"] = function
    return found


FUNCTIONS = list_functions()


def test_the_public_surface_is_what_we_say_it_is() -> None:
    assert sorted(holdfast.__all__) == SURFACE
    assert all(getattr(holdfast, name).__name__ == name for name in SURFACE)


def test_every_public_class_has_a_docstring_of_its_own() -> None:
    classes = {name: getattr(holdfast, name) for name in SURFACE if inspect.isclass(getattr(holdfast, name))}
    assert [name for name, one in classes.items() if not (one.__dict__.get("__doc__") or "").strip()] == []


def test_every_public_function_has_a_docstring() -> None:
    assert [name for name, one in FUNCTIONS.items() if len((inspect.getdoc(one) or "").split()) < 3] == []


@pytest.mark.parametrize("name", REFUSABLE)
def test_a_function_that_may_be_refused_says_so(name: str) -> None:
    assert re.search("Refused|BadInput|HoldfastError|raises", inspect.getdoc(FUNCTIONS[name]) or "")


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in FORWARDING])
def test_every_public_function_spells_its_keywords_out(name: str) -> None:
    for parameter in inspect.signature(FUNCTIONS[name]).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            assert str(parameter.annotation).startswith("Unpack["), parameter


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name.partition(".")[0] in CLIENT])
def test_what_a_client_method_takes_and_returns_is_public(name: str) -> None:
    mentioned = {one for hint in _resolve_hints(FUNCTIONS[name]).values() for one in _list_own_types(hint)}
    public = {getattr(holdfast, one) for one in SURFACE}
    assert {one.__name__ for one in mentioned - public} == set()


def _list_own_types(hint: Any) -> Iterator[type]:
    if inspect.isclass(hint) and hint.__module__.startswith("holdfast."):
        yield hint
    for inner in get_args(hint):
        yield from _list_own_types(inner)


def _resolve_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The types of a function, those that its module imports for type checkers alone included."""
    module = sys.modules[function.__module__]
    names = dict(vars(module))
    for node in ast.parse(Path(str(module.__file__)).read_text()).body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            exec(compile(ast.Module(node.body, []), module.__name__, "exec"), names)
    return get_type_hints(function, names)
