"""Filling the catalogue: what is built in, what the program gives, what the settings name, packages offer and commands
declare, in this order. The first keeps its name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from holdfast.activities.builtin import builtin_tools
from holdfast.activities.catalogue.discovery import discover
from holdfast.activities.catalogue.packages import load_entry_points, load_module
from holdfast.activities.catalogue.registry import BUILT_IN, IN_CODE, Registry
from holdfast.activities.outputs import OutputStore
from holdfast.configuration import DiscoverySettings
from holdfast.content import said
from holdfast.errors import BadInput
from holdfast.settings import Settings
from holdfast.tools import Tool

NO_MCP = "this version does not connect to MCP servers yet"


def load_registry(settings: Settings, outputs: OutputStore, given: Iterable[Tool] = ()) -> Registry:
    """Every tool of one worker. BadInput when a tool given in code cannot be used; the rest only costs itself."""
    registry = Registry(builtin_tools(outputs, settings.tools), source=BUILT_IN)
    # First of all, so that a tool of one's own can take the place of a built-in one.
    disabled = {name for name in settings.tools.disable if registry.remove(name)}
    for tool in given:
        registry.add(tool, IN_CODE)
    for reference in settings.tools.modules:
        load_module(registry, reference, settings.file.parent if settings.file else None)
    if settings.tools.entry_points:
        load_entry_points(registry)
    _load_discovered(registry, settings.discovery, outputs)
    for server in settings.mcp.servers:
        registry.refuse(f"MCP server {server}", NO_MCP)
    for name in settings.tools.disable:
        if name not in disabled and not registry.remove(name):
            registry.refuse("tools.disable", f"no tool is called {name!r}, so it cannot be disabled")
    return registry


def _load_discovered(registry: Registry, sources: Sequence[DiscoverySettings], outputs: OutputStore) -> None:
    if not sources:
        return
    # In a thread with a loop of its own: whoever builds a worker may be inside one.
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(asyncio.run, _discover_all(sources, outputs)).result()
    for source, tools in zip(sources, found, strict=True):
        name = f"discovery {source.name}"
        if isinstance(tools, BaseException):
            registry.refuse(name, said(tools))
            continue
        for tool in tools:
            if isinstance(tool, BadInput):
                registry.refuse(name, str(tool))
            else:
                registry.offer(tool, name)


async def _discover_all(
    sources: Sequence[DiscoverySettings], outputs: OutputStore
) -> list[list[Tool | BadInput] | BaseException]:
    return await asyncio.gather(*(discover(source, outputs) for source in sources), return_exceptions=True)
