"""Files that settings name and that decide what runs: policy files, lists of servers, scripts, modules.

Whoever changes one of these decides what is allowed, or what runs at the next start. So their digests are part of the
trust in the settings (`trust`), and tools change them only with an approval (`policy.protected_files`).

A script is a word of a command that is a file. Programs on the search path and files of the system are not: they change
with every upgrade.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.util.private_files import UnfitFile, open_regular_file

if TYPE_CHECKING:
    from holdfast.config.schema import Configuration
    from holdfast.config.settings import Settings

_SYSTEM = ("/bin", "/lib", "/lib64", "/nix", "/sbin", "/usr/bin", "/usr/lib", "/usr/libexec", "/usr/sbin")
_INSTALLED = frozenset(["site-packages", "dist-packages"])


@dataclass(frozen=True)
class NamedFiles:
    """The named files: those that are read, which need not exist, and those that run."""

    read: tuple[Path, ...] = ()
    """Policy files and lists of servers."""
    run: tuple[Path, ...] = ()
    """Scripts of commands, and modules."""

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 by path; empty for a file that cannot be read."""
        return {str(file): _digest_file(file) for file in sorted({*self.read, *self.run})}


def find_named_files(settings: Configuration | Settings, folder: Path) -> NamedFiles:
    """Find the files that settings name. `folder` is that of the settings file; modules are looked up there too."""
    commands = [
        *((hook.command, hook.folder) for hook in settings.hooks),
        *((command, one.folder) for one in settings.discovery for command in (one.discovery_command, one.call_command)),
        *((key.command, key.folder) for key in settings.encryption.keys),
        *_list_servers(settings),
    ]
    modules = [*settings.tools.modules, *(hook.python for hook in settings.hooks)]
    scripts = (file for words, place in commands for file in _find_scripts(words or (), place or folder))
    sources = (file for reference in modules if reference for file in _find_module(reference.partition(":")[0], folder))
    return NamedFiles(
        tuple(dict.fromkeys((*settings.policy, *settings.mcp.files))),
        tuple(dict.fromkeys(file for file in (*scripts, *sources) if not _is_system_file(file))),
    )


def combine_digests(content: str, named: NamedFiles) -> str:
    """Combine the digest of a settings file's content with those of the files that it names."""
    digests = named.digests
    return hashlib.sha256(json.dumps([content, digests]).encode()).hexdigest() if digests else content


def _list_servers(settings: Configuration | Settings) -> Iterator[tuple[Sequence[str], Path]]:
    mcp = settings.mcp
    if not mcp.files and not mcp.servers:
        return
    from holdfast.config.mcp_servers_file import load_configured  # few settings have servers

    for server in load_configured(mcp)[0].values():
        if server.command is not None:
            yield (server.command, *server.args), server.cwd or server.folder


def _find_scripts(words: Sequence[str], folder: Path) -> Iterator[Path]:
    """Find the words of a command that are files, also behind `--option=`, and the sources of `-m module`."""
    for word, before in zip(words, ("", *words), strict=False):
        for text in (word, word.partition("=")[2]):
            if text and (file := _find_file(folder, text)):
                yield file
        if before == "-m" and os.path.basename(words[0]).startswith("python"):
            yield from _find_module(word, folder)


def _find_module(name: str, folder: Path) -> Iterator[Path]:
    """Find the source of a module and of its packages: in the folder, or where Python finds it. Imports nothing."""
    places = [folder]
    first, *rest = name.split(".")
    try:
        spec = find_spec(first)
    except (ImportError, ValueError, AttributeError):
        spec = None
    if spec and spec.origin:
        origin = Path(spec.origin)
        places.append(origin.parent.parent if origin.name == "__init__.py" else origin.parent)
    path = "/".join((first, *rest))
    sources = [f"{path}.py", f"{path}/__main__.py"]
    sources += [f"{'/'.join((first, *rest[:depth]))}/__init__.py" for depth in range(len(rest) + 1)]
    yield from (file for place in places for source in sources if (file := _find_file(place, source)))


def _find_file(folder: Path, text: str) -> Path | None:
    try:
        file = Path(os.path.abspath(folder / Path(text).expanduser()))
        return file if file.is_file() else None
    except (OSError, RuntimeError, ValueError):
        return None


def _is_system_file(file: Path) -> bool:
    return any(file.is_relative_to(place) for place in _SYSTEM) or not _INSTALLED.isdisjoint(file.parts)


def _digest_file(file: Path) -> str:
    """SHA-256 of a regular file; empty when it cannot be read. Opening never blocks."""
    try:
        with open_regular_file(file) as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except (OSError, UnfitFile):
        return ""


def list_changed_files(before: dict[str, str], after: dict[str, str]) -> Iterable[str]:
    """List the files whose digests differ."""
    return (file for file in sorted(before.keys() | after.keys()) if before.get(file) != after.get(file))
