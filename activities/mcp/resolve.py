"""The settings of a server with the worker's environment filled in: how this process reaches it. Connects to
nothing.
"""

from __future__ import annotations

import os.path
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from holdfast.activities.mcp.server_secrets import GivenSettings, fill_references, find_secrets, list_variables
from holdfast.activities.process.command import build_environment
from holdfast.config.schema import McpServerSettings
from holdfast.errors import BadInput
from holdfast.util.secrets import Secrets


@dataclass(frozen=True)
class ResolvedServer:
    """How a server is reached. None of it is ever written down."""

    words: tuple[str, ...] = field(default=(), repr=False)
    """The command that starts it, with its arguments."""
    directory: Path = Path()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The whole environment of the command."""
    url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    client_id: str | None = field(default=None, repr=False)
    """The client id at the authorization server, if the settings have one."""
    client_secret: str | None = field(default=None, repr=False)
    secrets: Secrets = field(default_factory=Secrets, repr=False)
    start_seconds: float = 30

    @property
    def place(self) -> str:
        """The place of the server, without anything that may be secret."""
        if self.url is None:
            return self.secrets.hide(self.words[0])
        parts = urlsplit(self.url)
        return self.secrets.hide(f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}")


def resolve_server(settings: McpServerSettings, variables: Mapping[str, str]) -> ResolvedServer:
    """Fill in the references of the settings. BadInput for a missing variable or an invalid address."""
    words = [] if settings.command is None else [settings.command, *settings.args]
    headers = {name: fill_references(value, variables) for name, value in settings.headers.items()}
    added = {name: fill_references(value, variables) for name, value in settings.env.items()}
    oauth = settings.oauth
    client_id = fill_references(oauth.client_id, variables) if oauth and oauth.client_id else None
    client_secret = fill_references(oauth.client_secret, variables) if oauth and oauth.client_secret else None
    resolved = ResolvedServer(
        words=_fill_words(words, variables),
        directory=settings.cwd or settings.folder,
        environment=build_environment(added, inherit=False) if words else {},
        url=fill_references(settings.url, variables) if settings.url else None,
        headers=headers,
        client_id=client_id,
        client_secret=client_secret,
        secrets=Secrets(find_secrets(_collect_given(settings), variables)),
        start_seconds=settings.start_seconds,
    )
    _check_resolved(resolved)
    return resolved


def list_secret_variables(settings: McpServerSettings) -> list[str]:
    """List the variables that a server's settings refer to; commands do not get them."""
    return list_variables(_collect_given(settings))


def _collect_given(settings: McpServerSettings) -> GivenSettings:
    """The parts of the settings that may hold secrets."""
    words = [settings.command, *settings.args, settings.url]
    secret = settings.oauth.client_secret if settings.oauth else None
    assigned = [*settings.env.items(), *settings.headers.items(), *([("client_secret", secret)] if secret else [])]
    return GivenSettings([word for word in words if word], assigned)


def _fill_words(words: Sequence[str], variables: Mapping[str, str]) -> tuple[str, ...]:
    """The command with its references filled in; `~` at its beginning is the home folder of the worker's user."""
    found = [fill_references(word, variables) for word in words]
    return (os.path.expanduser(found[0]), *found[1:]) if found else ()


def _check_resolved(resolved: ResolvedServer) -> None:
    """Check what is known only once the references are filled in. The message repeats no value."""
    if resolved.url is not None:
        try:
            parts = urlsplit(resolved.url)
            fit = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            fit = False
        if not fit:
            raise BadInput("its url, with the environment filled in, is not one of http:// or https://")
    if "" in (resolved.client_id, resolved.client_secret):
        raise BadInput("its oauth.client_id or oauth.client_secret, with the environment filled in, is empty")
    for name, value in resolved.headers.items():
        if not value.isascii() or not value.isprintable():
            raise BadInput(f"its header {name!r}, with the environment filled in, holds what no header can")
    if any("\0" in text for text in (*resolved.words, *resolved.environment.values())):
        raise BadInput("its command or environment, with references filled in, holds a NUL character")
