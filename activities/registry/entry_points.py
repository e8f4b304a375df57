"""Tools that are loaded from installed packages (entry points) and from modules that the settings name.

A source that cannot be loaded is recorded in the registry with the reason, and costs no other source anything: other
people's code may do anything when it is imported, exit included.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from inspect import signature
from pathlib import Path
from traceback import extract_tb

from holdfast.activities.registry.registry import Registry
from holdfast.domain.calls.tool import Tool
from holdfast.errors import BadInput
from holdfast.util.text import exception_text

ENTRY_POINT_GROUP = "holdfast.tools"
"""The group of entry points by which a package offers tools."""


def load_entry_points(registry: Registry) -> None:
    """Register the tools of installed packages. Never raises: a problem is recorded in the registry."""
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: (point.name, point.value)):
        _load_tools(registry, f"package {_format_package(point)} ({point.value})", point.load)


def load_module(registry: Registry, reference: str, folder: Path | None = None) -> None:
    """Register what `module:name` names: a tool, several, or a function that makes them.

    A module that is not installed is looked for in `folder`. Never raises: a problem is recorded in the registry.
    """
    if folder and str(folder) not in sys.path:
        sys.path.append(str(folder))
    _load_tools(registry, f"module {reference}", lambda: _import_name(reference))


def collect_tools(found: object) -> list[Tool]:
    """The tools in an object: a tool, a tool's class, a list of them, or a function that makes any of these.

    BadInput for anything else.
    """
    if isinstance(found, Tool):
        return [found]
    if isinstance(found, type) and issubclass(found, Tool):
        return [found()]
    if isinstance(found, Iterable) and not isinstance(found, str | bytes):
        return [tool for item in found for tool in collect_tools(item)]
    if callable(found) and not isinstance(found, type):
        return collect_tools(_call_maker(found))
    raise BadInput(f"{found!r} is no tool: give a Tool, a function with @tool, a list of them, or a maker of one")


def _call_maker(maker: Callable[..., object]) -> object:
    """The result of a function without parameters; BadInput for one with some, which was meant to be a tool itself."""
    name = getattr(maker, "__name__", repr(maker))
    try:
        needed = [item for item in signature(maker).parameters.values() if item.default is item.empty]
    except ValueError:
        needed = []
    if any(item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD) for item in needed):
        raise BadInput(f"{name!r} takes parameters, so it makes no tools: put @tool above it if it is one")
    return maker()


def _load_tools(registry: Registry, source: str, load: Callable[[], object]) -> None:
    try:
        tools = collect_tools(load())
    except (Exception, SystemExit) as error:
        kind = "" if isinstance(error, BadInput) else f"{type(error).__name__}: "
        registry.refuse(source, f"{kind}{exception_text(error)}{_locate_error(error)}")
        return
    for tool in tools:
        registry.offer(tool, source)


def _locate_error(error: BaseException) -> str:
    """The place in other people's code that raised; empty for an error of our own checks."""
    frames = extract_tb(error.__traceback__)
    inside = frames[-1] if frames and not isinstance(error, BadInput | ModuleNotFoundError | SyntaxError) else None
    return f" ({inside.filename}, line {inside.lineno})" if inside else ""


def _import_name(reference: str) -> object:
    module, _, path = reference.partition(":")
    found: object = import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return found


def _format_package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.name
