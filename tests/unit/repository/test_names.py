"""Public functions are named verb + object; one bare word needs a reason, which stands here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from typing import Any, NamedTuple

from holdfast.workers.cli.command_tree import import_all_commands
from tests.unit.repository.test_layout import modules

FUNCTIONS = {
    "the entry points of programs": {"main"},
    "what a sidecar process calls in the module that it is given": {"answer"},
    "decorators, which are named by what they declare, as in temporalio": {"query", "signal", "tool", "update"},
}
"""The functions of a module that are one bare word, by the reason."""

METHODS = {
    "verbs of files, streams and containers, as the standard library and anyio name them": {
        "aclose", "add", "append", "close", "discard", "drain", "fetch", "find", "get", "hide", "leave", "enter",
        "locate", "open", "peek", "put", "read", "receive", "remove", "save", "scan", "seal", "send", "unseal", "write",
    },
    "verbs of processes, tasks and connections, the object being the class": {
        "attach", "attend", "cancel", "disconnect", "end", "execute", "restart", "run", "spawn", "start",
        "stop", "supervise", "wait",
    },
    "of the handle of a workflow, as temporalio names them": {"result", "signal", "validator"},
    "what a turn and a session are asked to do, as the messages of their workflows are named": {
        "approve", "configure", "decide", "deny", "finish", "interrupt", "revoke", "submit", "watch", "withdraw",
    },
    "the steps of a call, on a tool and in the activities": {"ask", "build", "describe", "validate", "verify"},
    "verbs of a codec, a compiler and a parser": {"compile", "encode", "pack", "parse", "unpack"},
    "verbs whose object is the class": {
        "check", "create", "elicit", "export", "judge", "offer", "publish", "refresh", "refuse", "release", "retire",
        "sign", "spend", "sweep", "emit",
    },
    "a predicate that reads as a sentence: a pattern matches a path": {"matches"},
}  # fmt: skip
"""The methods that are one bare word, by the reason."""

HANDLERS = {"query", "run", "signal", "update"}
"""Decorators of a workflow's handlers, whose names are in histories."""


class Named(NamedTuple):
    """A public function or method of one word."""

    module: str
    owner: str
    """The class of a method; empty for a function."""
    name: str
    line: int


def find_one_word_names() -> Iterator[Named]:
    """Public ones on the level of a module or a class, without properties and the handlers of workflows."""
    for module, path in modules().items():
        tree = ast.parse(path.read_text())
        owners: list[tuple[str, ast.Module | ast.ClassDef]] = [("", tree)]
        owners += [(node.name, node) for node in tree.body if isinstance(node, ast.ClassDef)]
        for owner, node in owners:
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and "_" not in inner.name:
                    decorators = {
                        ast.unparse(each).partition("(")[0].rpartition(".")[2] for each in inner.decorator_list
                    }
                    if not decorators & {"property", "cached_property", *(HANDLERS if owner else ())}:
                        yield Named(module, owner, inner.name, inner.lineno)


def find_commands(command: Any) -> Iterator[tuple[str, str]]:
    """The module and the name of each function that is a command: its name is what a user types."""
    if command.callback:
        yield command.callback.__module__, command.callback.__name__
    for below in getattr(command, "commands", {}).values():
        yield from find_commands(below)


def is_named_elsewhere(named: Named) -> bool:
    """Does a base class of another library name this method?"""
    owner = getattr(import_module(named.module), named.owner)
    return any(named.name in vars(base) for base in owner.__mro__ if not base.__module__.startswith("holdfast"))


def list_names(reasons: dict[str, set[str]]) -> set[str]:
    """All names of a list with reasons; none stands there twice."""
    names = [name for group in reasons.values() for name in group]
    assert len(names) == len(set(names))
    return set(names)


def test_public_functions_of_one_word_are_in_the_list() -> None:
    commands = set(find_commands(import_all_commands()))
    found = [one for one in find_one_word_names() if not one.owner and (one.module, one.name) not in commands]
    assert [one for one in found if one.name not in list_names(FUNCTIONS)] == []
    assert list_names(FUNCTIONS) - {one.name for one in found} == set(), "no longer needed"


def test_public_methods_of_one_word_are_in_the_list() -> None:
    found = [one for one in find_one_word_names() if one.owner and not is_named_elsewhere(one)]
    assert [one for one in found if one.name not in list_names(METHODS)] == []
    assert list_names(METHODS) - {one.name for one in found} == set(), "no longer needed"
