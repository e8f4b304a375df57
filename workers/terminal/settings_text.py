"""Settings for a person: what a file would do, before it is trusted, and what is in effect, with its origin.

Nothing is cut and every character shows. A name stands in the place of a secret that is written down in the file: the
value of `TOKEN` or `--api-key`, and the password of an address. Of variables in effect only the names are shown.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel

from holdfast.activities.mcp.server_secrets import GivenSettings, blank_references, find_secrets
from holdfast.config.mcp_servers_file import load_servers
from holdfast.config.schema import Configuration
from holdfast.config.settings import BUILD_VARIABLE, VARIABLES, Settings
from holdfast.domain.modes import Confirming
from holdfast.errors import BadInput
from holdfast.util.secrets import Secrets
from holdfast.workers.terminal.output import escape_line

SHORTEST_SECRET = 4
"""Characters of a value that is hidden because of its name."""
SettingRow = tuple[str, Any, str]
"""A setting's name, its value as JSON has it, and where it comes from: option, environment, file, default."""
_COMMAND_FIELDS = ("command", "args", "discovery_command", "call_command", "url", "endpoint")
_VARIABLE_FIELDS = ("env", "environment", "headers")
_TEXT_FIELDS = ("client_id", "client_secret")


def outline_settings(configuration: Configuration) -> list[tuple[str, str]]:
    """Everything that the file sets, as a word and a value; first what it runs."""
    return [(word, escape_line(text)) for word, text in (*_list_commands(configuration), *_list_values(configuration))]


def list_effective(settings: Settings, options: Mapping[str, Path | None]) -> list[SettingRow]:
    """Every setting, as it stands when the command line gave these folders."""
    tools, mcp = settings.tools, settings.mcp
    rows: list[SettingRow] = [
        (name, str(getattr(settings, name)), _find_origin(settings, name, options)) for name in VARIABLES
    ]
    for prefix, model in (("tools", tools), ("tools.shell", tools.shell), ("tools.fetch", tools.fetch)):
        rows += _list_fields(prefix, model)
    rows.append(("policy", list(map(str, settings.policy)), _describe_source(settings.policy)))
    rows.append(("modes", list(settings.permitted_modes), "default" if settings.modes is None else "file"))
    rows.append(("confirm", settings.confirm.value, _describe_source(settings.confirm is Confirming.ALWAYS)))
    rows.append(("yolo_asks", settings.yolo_asks, _describe_source(not settings.yolo_asks)))
    rows.append(("ledger", settings.ledger or str(settings.ledger_file), _describe_source(settings.ledger)))
    rows.append(("ledger_days", settings.ledger_days, "default" if settings.ledger_days == 30 else "file"))
    rows.append(
        ("approvers", [_dump_model(approver) for approver in settings.approvers], _describe_source(settings.approvers))
    )
    rows.append(
        ("decisions", settings.decisions or "signed where there is a key", _describe_source(settings.decisions))
    )
    rows.append(("hooks", [_dump_model(hook) for hook in settings.hooks], _describe_source(settings.hooks)))
    rows.append(
        ("discovery", [_dump_model(source) for source in settings.discovery], _describe_source(settings.discovery))
    )
    rows.append(("mcp.files", list(map(str, mcp.files)), _describe_source(mcp.files)))
    rows.append(
        ("mcp.servers", {name: _dump_model(one) for name, one in mcp.servers.items()}, _describe_source(mcp.servers))
    )
    rows += _list_fields("encryption", settings.encryption)
    for name in ("s3", "gcs"):
        if bucket := getattr(settings.storage, name):
            rows += _list_fields(f"storage.{name}", bucket)
    rows.append(("storage.kind", settings.storage.kind, "file" if settings.storage.model_fields_set else "default"))
    tables = ("limits", "gateway", "telemetry", "worker")
    rows += [row for name in tables for row in _list_fields(name, getattr(settings, name))]
    return rows + _list_version(settings)


def _list_version(settings: Settings) -> list[SettingRow]:
    named = {"deployment.build"} if os.environ.get(BUILD_VARIABLE) else set()
    rows = _list_fields("deployment", settings.deployment)
    return [(name, value, "environment" if name in named else origin) for name, value, origin in rows]


def _list_commands(found: Configuration) -> Iterator[tuple[str, str]]:
    for module in found.tools.modules:
        yield "imports", module
    for source in found.discovery:
        environment, hide = _format_variables(source.environment), build_hider(source)
        yield "runs at start", hide(f"{environment}{shlex.join(source.discovery_command)}  (tools of {source.name})")
        yield "runs for calls", hide(f"{environment}{shlex.join(source.call_command)} TOOL")
    for hook in found.hooks:
        what = hook.python or _format_variables(hook.environment) + shlex.join(hook.command or ())
        yield (
            f"asks {hook.when.value} calls",
            f"{build_hider(hook)(what)}  (hook {hook.name}, for {', '.join(hook.tools)})",
        )
    for key in found.encryption.keys:
        if key.command:
            yield "runs at start", f"{build_hider(key)(shlex.join(key.command))}  (encryption key {key.id})"
    for file in found.mcp.files:
        yield "MCP servers of", f"{file}  (trust does not cover the content of that file)"
        yield from (("  at present", server) for server in _list_file_servers(file))
    for name, server in found.mcp.servers.items():
        how = server.url or (
            _format_variables(server.env) + shlex.join([server.command, *server.args]) if server.command else ""
        )
        trusted = "  (its statements about its tools are trusted)" if server.trust else ""
        yield "MCP server", f"{name}: {build_hider(server)(how) or 'as in a file above'}{trusted}"


def _list_file_servers(file: Path) -> Iterator[str]:
    """The servers of a file that other programs read too: their commands and hosts, without possible secrets."""
    try:
        servers = load_servers(file)
    except BadInput as error:
        yield f"invalid: {error}"
        return
    for name, server in servers.items():
        if isinstance(server, BadInput):
            yield f"{name}, invalid: {server}"
        else:
            yield f"{name}: {server.command or _find_host(server.url or '')}"


def _find_host(url: str) -> str:
    with suppress(ValueError):
        return urlsplit(url).hostname or "an address by reference"
    return "an address by reference"


def _list_values(found: Configuration) -> Iterator[tuple[str, str]]:
    for name in ("workspace", "data", "task_queue"):
        if (value := getattr(found, name)) is not None:
            yield name.replace("_", " "), str(value)
    for file in found.policy:
        yield "uses the rules in", str(file)
    if found.modes:
        yield "permits the modes", ", ".join(found.modes)
    if found.confirm is Confirming.ALWAYS:
        yield "asks about", "every call, read-only calls included"
    if not found.yolo_asks:
        yield "allows in yolo", "calls that destroy or cannot be analysed"
    if found.ledger:
        yield "keeps its ledger at", found.ledger
    for key in found.encryption.keys:
        yield "encrypts with", f"{key.id}, from {key.env or key.file or 'a command'}"
    if found.encryption.plain == "refuse":
        yield "accepts", "only encrypted payloads"
    for kind, bucket in (("s3", found.storage.s3), ("gcs", found.storage.gcs)):
        if bucket:
            use = "stores payloads in" if found.storage.kind == kind else "reads payloads from"
            endpoint = getattr(bucket, "endpoint", None)
            yield use, f"{kind}, bucket {bucket.bucket}" + (f" at {build_hider(bucket)(endpoint)}" if endpoint else "")
    if found.decisions:
        yield "accepts decisions", found.decisions
    for approver in found.approvers:
        word = "approver for anybody" if approver.vouches else "approver"
        yield word, " ".join(filter(None, (approver.name, approver.key, *approver.roles)))
    shell, tools = found.tools.shell, found.tools
    if shell.environment:
        yield "commands get", build_hider(shell)(_format_variables(shell.environment).rstrip())
    if tools.disable:
        yield "disables", ", ".join(tools.disable)
    if tools.fetch.allow:
        yield "may fetch", ", ".join(tools.fetch.allow)
    if found.gateway.model_fields_set & {"host", "port"}:
        yield "HTTP listens on", f"{found.gateway.host}, port {found.gateway.port}"
    if found.gateway.names:
        yield "HTTP answers to", ", ".join(found.gateway.names)
    yield from _list_telemetry(found)
    if found.worker.health:
        yield "answers probes at", found.worker.health
    if found.deployment.build:
        yield "workers are version", f"{found.deployment.build} of {found.deployment.name}"
    numbers = ((tools, ""), (shell, "shell "), (tools.fetch, "fetch "), (found.limits, ""), (found.worker, "worker "))
    for model, prefix in numbers:
        for name in sorted(model.model_fields_set):
            value = getattr(model, name)
            if isinstance(value, bool | int | float):
                yield prefix + name.replace("_", " "), _format_number(value)


def _list_telemetry(found: Configuration) -> Iterator[tuple[str, str]]:
    telemetry = found.telemetry
    if telemetry.traces != "none":
        yield "sends traces by", telemetry.traces
    if telemetry.metrics:
        yield "metrics listen on", telemetry.metrics
    if telemetry.logs != "text":
        yield "writes logs as", telemetry.logs
    if telemetry.content:
        yield "logs and traces contain", "arguments and results of calls"


def _list_fields(prefix: str, model: BaseModel) -> list[SettingRow]:
    values = _dump_model(model)
    return [
        (f"{prefix}.{name}", value, "file" if name in model.model_fields_set else "default")
        for name, value in values.items()
        if not isinstance(getattr(model, name), BaseModel)
    ]


def _dump_model(model: BaseModel) -> dict[str, Any]:
    found, hide = model.model_dump(mode="json"), build_hider(model)
    return {
        name: sorted(value) if name in _VARIABLE_FIELDS else _hide_secrets(value, hide) for name, value in found.items()
    }


def _hide_secrets(value: Any, hide: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, list):
        return [_hide_secrets(one, hide) for one in value]
    return {name: _hide_secrets(one, hide) for name, one in value.items()} if isinstance(value, dict) else value


def build_hider(model: BaseModel) -> Callable[[str], str]:
    """Puts names in the place of what is secret among the commands, variables and addresses of these settings."""
    found = model.model_dump(mode="json")
    found |= found.get("oauth") or {}
    words = [_find_literal(word) for name in _COMMAND_FIELDS for word in _to_list(found.get(name))]
    assigned = [
        (name, _find_literal(text)) for table in _VARIABLE_FIELDS for name, text in (found.get(table) or {}).items()
    ]
    assigned += [(name, _find_literal(found[name])) for name in _TEXT_FIELDS if found.get(name)]
    return Secrets(find_secrets(GivenSettings(words, assigned), {}, SHORTEST_SECRET)).hide


def _find_literal(text: str) -> str:
    """The literal text of the file, without references that the environment or another program fills in."""
    return blank_references(text, {}).replace("${", "$ ").strip()


def _to_list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value or ())


def _find_origin(settings: Settings, name: str, options: Mapping[str, Path | None]) -> str:
    """Where a setting comes from. Typer fills options from the environment: these count as `environment`."""
    variable, given = os.environ.get(VARIABLES[name]), options.get(name)
    if given is not None and str(given) != variable:
        return "option"
    return "environment" if variable else "file" if name in settings.file_lines else "default"


def _describe_source(value: object) -> str:
    return "file" if value else "default"


def _format_variables(environment: Mapping[str, str]) -> str:
    return "".join(f"{name}={shlex.quote(value)} " for name, value in environment.items())


def _format_number(value: bool | int | float) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}".removesuffix(".0")
