"""The policy subject of a call that is described on the command line and not run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from holdfast.activities.mcp.server.definition_pins import KnownTool, find_known_tool
from holdfast.activities.policy.find_protected import build_protected
from holdfast.activities.policy.git_configuration import find_git_doubts
from holdfast.activities.policy.protected_files import complete_subject
from holdfast.activities.policy.subject import BUILT_IN, FOLDER_ARGUMENT, CallKind, Subject, build_call_subject
from holdfast.activities.process.command import build_environment
from holdfast.config.settings import Settings
from holdfast.domain.calls.tool import Effect


def build_subject(
    tool: str,
    arguments: Mapping[str, JsonValue],
    settings: Settings,
    server: str | None = None,
    *,
    tainted: bool = False,
    sends: bool = False,
) -> tuple[Subject, str | None]:
    """The subject that rules are matched against, and a remark on how the tool is known."""
    given: dict[str, Any] = {"tainted": tainted}
    found = (
        None
        if tool in BUILT_IN and server is None
        else find_known_tool(tool, settings.mcp, settings.mcp_tools_folder, server)
    )
    if found:
        kind = None if found.effect is Effect.READ else CallKind.MCP
        given |= {"server": found.server, "own_name": found.own_name, "effect": found.effect, "kind": kind}
        given["destructive"] = found.destructive
        sends = sends or found.open_world
    elif server:
        given["server"] = server
    subject = build_call_subject(found.name if found else tool, arguments, workspace=settings.workspace, **given)
    if subject.command is not None:
        folder, shell = settings.workspace / str(subject.arguments[FOLDER_ARGUMENT]), settings.tools.shell
        within = build_environment(shell.environment, inherit=shell.inherit_environment)
        doubts = find_git_doubts(subject.command, folder, settings.workspace, within)
        subject = subject.model_copy(update={"doubts": doubts})
    return complete_subject(subject, sends or None, build_protected(settings)), _describe_source(found, server)


def _describe_source(found: KnownTool | None, server: str | None) -> str | None:
    if found:
        how = "as of its last connection here" if found.met else "which was never connected here"
        return f"{found.own_name!r} of the MCP server {found.server!r}, {how}: its effect is {found.effect.value}."
    return (
        f"No MCP server is called {server!r} in the settings: the effect of its tools is taken as once."
        if server
        else None
    )
