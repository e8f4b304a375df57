"""Settings for a person: what a file would do, before it is trusted, and what is in effect, with its origin.

Nothing is cut and no character hides. Of variables in effect only the names are told: their values may be secrets.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel

from holdfast.activities.mcp.servers_file import read_servers
from holdfast.configuration import Configuration
from holdfast.content import visible
from holdfast.errors import BadInput
from holdfast.settings import BUILD, VARIABLES, Settings

Row = tuple[str, Any, str]
"""A setting's name, its value as JSON has it, and where it comes from: option, environment, file, default."""


def outline(configuration: Configuration) -> list[tuple[str, str]]:
    """Everything that it sets, as a word and a value; first what it runs."""
    return [(word, harmless(text)) for word, text in (*_runs(configuration), *_sets(configuration))]


def in_effect(settings: Settings, options: Mapping[str, Path | None]) -> list[Row]:
    """Every setting, as it stands when the command line gave these folders."""
    tools, mcp = settings.tools, settings.mcp
    rows: list[Row] = [(name, str(getattr(settings, name)), _origin(settings, name, options)) for name in VARIABLES]
    for prefix, model in (("tools", tools), ("tools.shell", tools.shell), ("tools.fetch", tools.fetch)):
        rows += _fields(prefix, model)
    rows.append(("policy", list(map(str, settings.policy)), _said(settings.policy)))
    rows.append(("modes", list(settings.permitted), "default" if settings.modes is None else "file"))
    rows.append(("ledger", settings.ledger or str(settings.ledger_file), _said(settings.ledger)))
    rows.append(("ledger_days", settings.ledger_days, "default" if settings.ledger_days == 30 else "file"))
    rows.append(("approvers", [_dumped(approver) for approver in settings.approvers], _said(settings.approvers)))
    rows.append(("decisions", settings.decisions or "signed where there is a key", _said(settings.decisions)))
    rows.append(("hooks", [_dumped(hook) for hook in settings.hooks], _said(settings.hooks)))
    rows.append(("discovery", [_dumped(source) for source in settings.discovery], _said(settings.discovery)))
    rows.append(("mcp.files", list(map(str, mcp.files)), _said(mcp.files)))
    rows.append(("mcp.servers", {name: _dumped(one) for name, one in mcp.servers.items()}, _said(mcp.servers)))
    rows += _fields("encryption", settings.encryption)
    for name in ("s3", "gcs"):
        if bucket := getattr(settings.storage, name):
            rows += _fields(f"storage.{name}", bucket)
    rows.append(("storage.kind", settings.storage.kind, "file" if settings.storage.model_fields_set else "default"))
    tables = ("limits", "gateway", "telemetry", "worker")
    rows += [row for name in tables for row in _fields(name, getattr(settings, name))]
    return rows + _version(settings)


def _version(settings: Settings) -> list[Row]:
    named = {"deployment.build"} if os.environ.get(BUILD) else set()
    rows = _fields("deployment", settings.deployment)
    return [(name, value, "environment" if name in named else origin) for name, value, origin in rows]


def harmless(text: str) -> str:
    """One line in which every character shows."""
    return visible(text).replace("\n", "␊").replace("\t", "␉")


def _runs(found: Configuration) -> Iterator[tuple[str, str]]:
    for module in found.tools.modules:
        yield "imports", module
    for source in found.discovery:
        environment = _assigned(source.environment)
        yield "runs at start", f"{environment}{shlex.join(source.discovery_command)}  (tools of {source.name})"
        yield "runs for calls", f"{environment}{shlex.join(source.call_command)} TOOL"
    for hook in found.hooks:
        what = hook.python or _assigned(hook.environment) + shlex.join(hook.command or ())
        yield f"asks {hook.when.value} calls", f"{what}  (hook {hook.name}, for {', '.join(hook.tools)})"
    for key in found.encryption.keys:
        if key.command:
            yield "runs at start", f"{shlex.join(key.command)}  (encryption key {key.id})"
    for file in found.mcp.files:
        yield "MCP servers of", f"{file}  (this trust is not about what that says)"
        yield from (("  now it has", server) for server in _in_file(file))
    for name, server in found.mcp.servers.items():
        how = server.url or (
            _assigned(server.env) + shlex.join([server.command, *server.args]) if server.command else ""
        )
        trusted = "  (trusted to say what its tools do)" if server.trust else ""
        yield "MCP server", f"{name}: {how or 'as a file above has it'}{trusted}"


def _in_file(file: Path) -> Iterator[str]:
    """The servers of a file that other programs read too: what is started or reached, without what may be secret."""
    try:
        servers = read_servers(file)
    except BadInput as error:
        yield f"nothing that can be used: {error}"
        return
    for name, server in servers.items():
        if isinstance(server, BadInput):
            yield f"{name}, which cannot be used: {server}"
        else:
            yield f"{name}: {server.command or _host(server.url or '')}"


def _host(url: str) -> str:
    with suppress(ValueError):
        return urlsplit(url).hostname or "an address by reference"
    return "an address by reference"


def _sets(found: Configuration) -> Iterator[tuple[str, str]]:
    for name in ("workspace", "data", "task_queue"):
        if (value := getattr(found, name)) is not None:
            yield name.replace("_", " "), str(value)
    for file in found.policy:
        yield "goes by the rules in", str(file)
    if found.modes:
        yield "permits the modes", ", ".join(found.modes)
    if found.ledger:
        yield "keeps its ledger at", found.ledger
    for key in found.encryption.keys:
        yield "encrypts with", f"{key.id}, from {key.env or key.file or 'a command'}"
    if found.encryption.plain == "refuse":
        yield "takes", "only what is encrypted"
    for kind, bucket in (("s3", found.storage.s3), ("gcs", found.storage.gcs)):
        if bucket:
            use = "keeps payloads in" if found.storage.kind == kind else "reads payloads from"
            endpoint = getattr(bucket, "endpoint", None)
            yield use, f"{kind}, bucket {bucket.bucket}" + (f" at {endpoint}" if endpoint else "")
    if found.decisions:
        yield "takes decisions", found.decisions
    for approver in found.approvers:
        word = "lets decide for anybody" if approver.vouches else "lets decide"
        yield word, " ".join(filter(None, (approver.name, approver.key, *approver.roles)))
    shell, tools = found.tools.shell, found.tools
    if shell.environment:
        yield "commands get", _assigned(shell.environment).rstrip()
    if tools.disable:
        yield "leaves out", ", ".join(tools.disable)
    if tools.fetch.allow:
        yield "may fetch", ", ".join(tools.fetch.allow)
    if found.gateway.model_fields_set & {"host", "port"}:
        yield "HTTP listens on", f"{found.gateway.host}, port {found.gateway.port}"
    if found.gateway.names:
        yield "HTTP answers to", ", ".join(found.gateway.names)
    yield from _tells(found)
    if found.worker.health:
        yield "probes ask at", found.worker.health
    if found.deployment.build:
        yield "workers are version", f"{found.deployment.build} of {found.deployment.name}"
    numbers = ((tools, ""), (shell, "shell "), (tools.fetch, "fetch "), (found.limits, ""), (found.worker, "worker "))
    for model, prefix in numbers:
        for name in sorted(model.model_fields_set):
            value = getattr(model, name)
            if isinstance(value, bool | int | float):
                yield prefix + name.replace("_", " "), _number(value)


def _tells(found: Configuration) -> Iterator[tuple[str, str]]:
    telemetry = found.telemetry
    if telemetry.traces != "none":
        yield "sends traces by", telemetry.traces
    if telemetry.metrics:
        yield "metrics listen on", telemetry.metrics
    if telemetry.logs != "text":
        yield "writes logs as", telemetry.logs
    if telemetry.content:
        yield "logs and traces hold", "what calls are given and give back"


def _fields(prefix: str, model: BaseModel) -> list[Row]:
    values = _dumped(model)
    return [
        (f"{prefix}.{name}", value, "file" if name in model.model_fields_set else "default")
        for name, value in values.items()
        if not isinstance(getattr(model, name), BaseModel)
    ]


def _dumped(model: BaseModel) -> dict[str, Any]:
    found = model.model_dump(mode="json")
    return {
        name: sorted(value) if name in ("environment", "env", "headers") else value for name, value in found.items()
    }


def _origin(settings: Settings, name: str, options: Mapping[str, Path | None]) -> str:
    """Options that the environment filled in count as the environment's."""
    variable, given = os.environ.get(VARIABLES[name]), options.get(name)
    if given is not None and str(given) != variable:
        return "option"
    return "environment" if variable else "file" if name in settings.file_lines else "default"


def _said(value: object) -> str:
    return "file" if value else "default"


def _assigned(environment: Mapping[str, str]) -> str:
    return "".join(f"{name}={shlex.quote(value)} " for name, value in environment.items())


def _number(value: bool | int | float) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}".removesuffix(".0")
