"""Where tools come from that are neither built in nor given in code: packages that offer some, modules that are named.

What cannot be loaded is remembered with its reason, and costs nobody else anything: other people's code may do
anything when it is imported, including leaving the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from holdfast.activities.catalogue.registry import Registry
from holdfast.content import said
from holdfast.errors import BadInput
from holdfast.tools import Tool

GROUP = "holdfast.tools"
"""The entry points by which a package offers tools."""


def load_entry_points(registry: Registry) -> None:
    """Take in what installed packages offer."""
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        _load(registry, f"package {_package(point)} ({point.value})", point.load)


def load_module(registry: Registry, reference: str) -> None:
    """Take in what `module:name` is: a tool, several, or a function that makes them."""
    _load(registry, f"module {reference}", lambda: _named(reference))


def tools_of(found: object) -> list[Tool]:
    """A tool, a tool's class, a list of them, or a function that makes any of these. BadInput for anything else."""
    if isinstance(found, Tool):
        return [found]
    if isinstance(found, type) and issubclass(found, Tool):
        return [found()]
    if isinstance(found, Iterable) and not isinstance(found, str | bytes):
        return [tool for item in found for tool in tools_of(item)]
    if callable(found) and not isinstance(found, type):
        return tools_of(found())
    raise BadInput(f"{found!r} is no tool: give a Tool, a function with @tool, a list of them, or a maker of one")


def _load(registry: Registry, source: str, load: Callable[[], object]) -> None:
    try:
        tools = tools_of(load())
    except (Exception, SystemExit) as error:
        registry.refuse(source, f"{type(error).__name__}: {said(error)}")
        return
    for tool in tools:
        registry.offer(tool, source)


def _named(reference: str) -> object:
    module, _, path = reference.partition(":")
    found: object = import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return found


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.name
