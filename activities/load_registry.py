"""Fills the registry of a worker with built-in tools, tools given in code, those of modules that the settings name, of
installed packages and of discovery commands, in this order; later with those of MCP servers. The first tool of a name
keeps it.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from holdfast.activities.builtin import build_builtin_tools
from holdfast.activities.mcp.servers import McpServers
from holdfast.activities.process.output_store import OutputStore
from holdfast.activities.registry.command_tools import discover_tools
from holdfast.activities.registry.entry_points import load_entry_points, load_module
from holdfast.activities.registry.registry import BUILT_IN, IN_CODE, Registry
from holdfast.activities.supervision.runs import open_runs, open_sandbox
from holdfast.config.schema import DiscoverySettings
from holdfast.config.settings import Settings
from holdfast.domain.calls.tool import Tool
from holdfast.errors import BadInput
from holdfast.util.findings import Finding, report_ok, report_warning
from holdfast.util.mcp_names import build_prefix
from holdfast.util.suggestions import did_you_mean
from holdfast.util.text import exception_text, shorten_text

T = TypeVar("T")
MAX_PROBLEMS = 10
"""Tools that cannot be used and are listed one by one."""


def load_registry(
    settings: Settings, outputs: OutputStore, given: Iterable[Tool] = (), servers: McpServers | None = None
) -> Registry:
    """Load every tool of one worker. BadInput when a tool given in code cannot be used; other sources that fail are
    recorded.

    The tools of MCP servers are added when these are connected, under names that no other tool has.
    """
    built_in = build_builtin_tools(outputs, settings.tools, open_runs(settings), open_sandbox(settings))
    registry = Registry(built_in, source=BUILT_IN)
    # First of all, so that a tool of one's own can take the place of a built-in one.
    disabled = {name for name in settings.tools.disable if registry.remove(name)}
    for tool in given:
        registry.add(tool, IN_CODE)
    for reference in settings.tools.modules:
        load_module(registry, reference, settings.file.parent if settings.file else None)
    if settings.tools.entry_points:
        load_entry_points(registry)
    _load_discovered(registry, settings.discovery, outputs)
    later = tuple(map(build_prefix, servers.names)) if servers else ()
    for name in settings.tools.disable:
        if name not in disabled and not registry.remove(name) and not name.startswith(later):
            hint = did_you_mean(name, [entry.declaration.name for entry in registry.entries])
            why = f"no tool is called {name!r}, so it cannot be disabled"
            registry.refuse("tools.disable", f"{why}. {hint}" if hint else why)
    registry.disabled = frozenset(settings.tools.disable)
    if servers:
        servers.fill_registry(registry)
    return registry


def _load_discovered(registry: Registry, sources: Sequence[DiscoverySettings], outputs: OutputStore) -> None:
    if not sources:
        return
    found = _run_to_end(_discover_all(sources, outputs))
    for source, tools in zip(sources, found, strict=True):
        name = f"discovery {source.name}"
        if isinstance(tools, BaseException):
            registry.refuse(name, exception_text(tools))
            continue
        for tool in tools:
            if isinstance(tool, BadInput):
                registry.refuse(name, str(tool))
            else:
                registry.offer(tool, name)


def _run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on a loop of its own and return its result. SIGTERM cancels it before it ends this process."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_run_until_signal(work))
    with ThreadPoolExecutor(1) as thread:  # whoever builds a worker may be inside a loop
        return thread.submit(asyncio.run, work).result()


async def _run_until_signal(work: Coroutine[Any, Any, T]) -> T:
    task = asyncio.ensure_future(work)
    with suppress(ValueError, RuntimeError):  # only the main thread hears of signals
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise SystemExit(128 + signal.SIGTERM) from None


async def _discover_all(
    sources: Sequence[DiscoverySettings], outputs: OutputStore
) -> list[list[Tool | BadInput] | BaseException]:
    return await asyncio.gather(*(discover_tools(source, outputs) for source in sources), return_exceptions=True)


def check_tools(settings: Settings) -> Iterator[Finding]:
    """Load every tool as a worker would; servers are known by name only. BadInput when no worker would start."""
    limits = settings.limits
    outputs = OutputStore(settings.outputs_folder, limits.output_characters, limits.saved_output_bytes)
    servers = McpServers(settings.mcp, settings.mcp_tools_folder)
    registry = load_registry(settings, outputs, (), servers)
    yield report_ok(f"{len(registry.entries)} can be used")
    reported = {refusal.source for refusal in servers.refusals}
    wrong = [one for one in registry.problems if one.source not in reported]
    do = "correct it, or leave it out of the settings; `holdfast tools list` shows all"
    for one in wrong[:MAX_PROBLEMS]:
        yield report_warning(f"not available, from {one.source}: {shorten_text(one.reason, 500)}", do)
    if len(wrong) > MAX_PROBLEMS:
        yield report_warning(f"and {len(wrong) - MAX_PROBLEMS} more cannot be used", "holdfast tools list")
