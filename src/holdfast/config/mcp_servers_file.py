"""MCP servers from the file that other programs share: `{"mcpServers": {NAME: {"command": …} or {"url": …}}}`.

Only how to reach a server, and which of its tools to include, is read from it; several spellings are accepted. Trust is
set in `holdfast.toml` alone. A server that cannot be used is left out, with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from holdfast.config.schema import McpServerSettings, McpSettings
from holdfast.config.toml_document import read_content
from holdfast.errors import BadInput
from holdfast.util.globs import Glob, escape_glob
from holdfast.util.suggestions import did_you_mean
from holdfast.util.text import shorten_text

SERVERS_LIMIT = 100
_NAME_LIMIT = 40
_INVALID_CHARACTERS = re.compile(r"[^A-Za-z0-9_-]+")
_TABLE_NAMES = ("mcpServers", "servers")
_URL_FIELDS = ("httpUrl", "url", "serverUrl")
_HTTP_TYPES = ("http", "streamable-http", "streamable_http", "streamableHttp")
_KEPT_FIELDS = ("command", "args", "env", "cwd", "headers")
_FILTER_FIELDS = {"includeTools": "include", "excludeTools": "exclude"}
_LIST_FIELDS = ("args", *_FILTER_FIELDS)
_OBJECT_FIELDS = ("env", "headers")


class ServerRefusal(NamedTuple):
    """A file, or a server of it, that is not used, and the reason."""

    source: str
    reason: str


def load_configured(settings: McpSettings) -> tuple[dict[str, McpServerSettings], list[ServerRefusal]]:
    """Return every server by name, and the refused ones. A server of `holdfast.toml` overrides one of a file."""
    found: dict[str, McpServerSettings] = {}
    refused: list[ServerRefusal] = []
    for file in settings.files:
        try:
            servers = load_servers(file)
        except BadInput as error:
            refused.append(ServerRefusal(f"MCP servers of {file}", str(error)))
            continue
        for name, server in servers.items():
            if isinstance(server, BadInput):
                refused.append(ServerRefusal(f"MCP server {name} of {file}", str(server)))
            elif name in found:
                refused.append(
                    ServerRefusal(f"MCP server {name} of {file}", "an earlier file has a server of that name")
                )
            else:
                found[name] = server
    for name, own in settings.servers.items():
        if own.command is not None or own.url is not None:
            found[name] = own
        elif name in found:
            found[name] = _merge_settings(found[name], own)
        else:
            refused.append(
                ServerRefusal(
                    f"MCP server {name}", "it has no `command` or `url`, and no file has a server of that name"
                )
            )
    for name in list(found)[SERVERS_LIMIT:]:
        refused.append(ServerRefusal(f"MCP server {name}", f"at most {SERVERS_LIMIT} servers are connected"))
        del found[name]
    return found, refused


def _merge_settings(server: McpServerSettings, own: McpServerSettings) -> McpServerSettings:
    """Apply the settings of `holdfast.toml` to a server of a file. A tool must pass the filters of both."""
    added = {name: getattr(own, name) for name in own.model_fields_set - {"folder"}}
    return server.model_copy(
        update={**added, "include": _merge_includes(server, own), "exclude": server.exclude + own.exclude}
    )


def _merge_includes(server: McpServerSettings, own: McpServerSettings) -> tuple[str, ...]:
    """Combine both filters. A file includes tools by exact names; the patterns of `holdfast.toml` select from these."""
    if "include" not in server.model_fields_set:
        return own.include
    patterns = [Glob(pattern) for pattern in own.include]
    names = [name for pattern in server.include for name in Glob(pattern).literals]
    return tuple(escape_glob(name) for name in names if any(pattern.matches(name) for pattern in patterns))


def load_servers(file: Path) -> dict[str, McpServerSettings | BadInput]:
    """Load the servers of a file; a BadInput in place of one that is invalid. Raises BadInput for an invalid file."""
    content = read_content(file)
    if content.problem:
        raise BadInput(content.problem)
    try:
        whole = json.loads(content.data.decode("utf-8-sig"), object_pairs_hook=_check_unique)
    except _DuplicateName as error:
        raise BadInput(f"it has {shorten_text(str(error), 80)!r} twice in one object") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"it is not JSON: {shorten_text(str(error), 200)}") from None
    tables = [whole[key] for key in _TABLE_NAMES if isinstance(whole, dict) and isinstance(whole.get(key), dict)]
    if not tables:
        raise BadInput('it holds no {"mcpServers": {…}}')
    found: dict[str, McpServerSettings | BadInput] = {}
    for given, entry in _list_enabled(tables[0]):
        name = _INVALID_CHARACTERS.sub("-", given).strip("-")[:_NAME_LIMIT]
        known = found.get(name)
        found[name or "?"] = BadInput("two servers would have this name") if known else _parse_server(name, entry, file)
    return found


def load_disabled(file: Path) -> set[str]:
    """List the servers that a file switches off."""
    try:
        whole = json.loads(read_content(file).data.decode("utf-8-sig"))
        tables = [whole[key] for key in _TABLE_NAMES if isinstance(whole.get(key), dict)]
    except (ValueError, RecursionError, AttributeError):
        return set()
    return {name for table in tables for name, entry in table.items() if _is_off(entry)}


class _DuplicateName(ValueError):
    """A name occurs twice in one JSON object."""


def _check_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _DuplicateName(name)
        found[name] = value
    return found


def _is_off(entry: Any) -> bool:
    return isinstance(entry, dict) and str(entry.get("disabled")).lower() in ("true", "1", "yes")


def _list_enabled(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, entry) for name, entry in table.items() if not _is_off(entry))


def _parse_server(name: str, entry: Any, file: Path) -> McpServerSettings | BadInput:
    if not isinstance(entry, dict) or not name:
        return BadInput("it must be an object with a name of letters and digits")
    if wrong := _explain_wrong(entry):
        return BadInput(wrong)
    kind, url = (
        entry.get("type", entry.get("transport")),
        next((entry[key] for key in _URL_FIELDS if entry.get(key)), None),
    )
    if kind == "sse":
        return BadInput('it has the type "sse", which MCP has removed: try its address for "http"')
    if kind not in (None, "stdio", *_HTTP_TYPES):
        return BadInput(f"unknown type {shorten_text(str(kind), 40)!r}")
    given = {key: entry[key] for key in _KEPT_FIELDS if entry.get(key)}
    if url:
        given = {"url": url, **{key: value for key, value in given.items() if key == "headers"}}
    else:
        given.pop("headers", None)
    given |= {ours: tuple(map(escape_glob, entry[key])) for key, ours in _FILTER_FIELDS.items() if entry.get(key)}
    try:
        return McpServerSettings.model_validate(given, context={"folder": file.parent, "names": {}})
    except ValidationError as error:
        return BadInput(_describe_error(error))


def _explain_wrong(entry: Mapping[str, Any]) -> str | None:
    """Describe what is wrong with an entry, where a better message than pydantic's is possible; else None."""
    for key in _LIST_FIELDS:
        if not _is_text_list(entry.get(key, [])):
            return f"`{key}` must be an array of texts"
    for key in _OBJECT_FIELDS:
        value = entry.get(key) or {}
        if not isinstance(value, dict):
            return f"`{key}` must be an object with texts"
        if others := [name for name, one in value.items() if not isinstance(one, str)]:
            return f"`{key}.{shorten_text(others[0], 80)}` must be a text"
    urls = [key for key in _URL_FIELDS if entry.get(key)]
    if entry.get("command") and urls:
        return f"it has a `command` and a `{urls[0]}`: leave one out"
    if not entry.get("command") and not urls:
        near = [hint for key in entry if (hint := did_you_mean(str(key), ("command", *_URL_FIELDS)))]
        return " ".join(["it has neither a `command` nor a `url`.", *near[:1]])
    return None


def _is_text_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _describe_error(error: ValidationError) -> str:
    """Describe an invalid entry without its values, which may be secret."""
    found = error.errors(include_input=False, include_url=False, include_context=False)
    described = [f"`{item['loc'][0]}`: {item['msg']}" if item["loc"] else item["msg"] for item in found]
    return "; ".join(described).replace("Value error, ", "")
