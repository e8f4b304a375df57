"""How git is run: its settings in the environment of a command, its configuration, its answers (S30).

git reads the settings of `GIT_CONFIG_COUNT` last, so they win over those of a repository.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

GIT_SECONDS = 5.0
"""The time for an answer of git."""
MAX_BYTES = 64_000_000
"""Bytes of an answer of git."""
_ALWAYS_SETTINGS = (("safe.bareRepository", "explicit"), ("core.fsmonitor", "false"))
_UNASKED_SETTINGS = (("core.hooksPath", "/dev/null"), ("core.pager", "cat"))
_USER_DEFAULTS = {
    "core.askPass": "",
    "core.editor": ":",
    "core.sshCommand": "ssh",
    "gpg.openpgp.program": "gpg",
    "gpg.program": "gpg",
    "gpg.ssh.program": "ssh-keygen",
    "gpg.x509.program": "gpgsm",
    "sequence.editor": ":",
}
"""Programs that the user may have configured, with the defaults."""
_NOT_PASSED_ON = frozenset(["GIT_CONFIG_PARAMETERS", "GIT_EXTERNAL_DIFF"])
"""Variables that would override our settings: git reads the first one after them."""
CREDENTIAL_HELPER = re.compile(r"credential\.(.*\.)?helper", re.DOTALL)
REPLACED_KEYS = frozenset(name.lower() for name in (*dict((*_ALWAYS_SETTINGS, *_UNASKED_SETTINGS)), *_USER_DEFAULTS))


def guard_git(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command, with settings for every git that it runs."""
    return _add_settings(environment, _ALWAYS_SETTINGS)


def guard_git_unasked(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The environment of a command that nobody was asked about: git runs no hook, and only programs of the user."""
    own = _read_own_settings(folder, environment)
    chosen = {name: _find_last(own, name.lower(), usual) for name, usual in _USER_DEFAULTS.items()}
    if "core.sshcommand" not in {key for key, _ in own}:
        chosen["core.sshCommand"] = environment.get("GIT_SSH") or chosen["core.sshCommand"]
    helpers = [("credential.helper", ""), *((key, value) for key, value in own if CREDENTIAL_HELPER.fullmatch(key))]
    guarded = _add_settings(environment, [*_ALWAYS_SETTINGS, *_UNASKED_SETTINGS, *chosen.items(), *helpers])
    return {name: value for name, value in guarded.items() if name not in _NOT_PASSED_ON}


@dataclass(frozen=True)
class GitSetting:
    """One entry of git's configuration, with its origin."""

    scope: str
    origin: str
    key: str
    """The key, in lower case except between the first and the last dot."""
    value: str

    @property
    def file(self) -> Path:
        """The file that it stands in."""
        return Path(self.origin.removeprefix("file:"))

    def is_of_the_repository(self, folder: Path, workspace: Path) -> bool:
        """Is it in the configuration of the repository, or in a file of the workspace that the user includes?"""
        if self.scope in ("system", "global"):
            return self.origin.startswith("file:") and (folder / self.file).resolve().is_relative_to(workspace)
        return self.scope != "command"


def list_settings(options: tuple[str, ...], folder: Path, environment: Mapping[str, str]) -> list[GitSetting] | None:
    """The configuration that git would use here, in order; None when git does not tell it."""
    found = run_git(options, folder, environment, "config", "--list", "--show-scope", "--show-origin", "-z")
    return None if found is None else list(_parse_settings(found))


def run_git(options: tuple[str, ...], folder: Path, environment: Mapping[str, str], *words: str) -> bytes | None:
    """The output of git; None when it fails, or prints too much."""
    try:
        done = subprocess.run(
            ["git", *options, *words],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_SECONDS,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 and len(done.stdout) <= MAX_BYTES else None


def _parse_settings(listed: bytes) -> Iterator[GitSetting]:
    texts = listed.decode("utf-8", "surrogateescape").split("\0")
    for scope, origin, pair in zip(texts[::3], texts[1::3], texts[2::3], strict=False):
        key, _, value = pair.partition("\n")
        yield GitSetting(scope, origin, key, value)


def _read_own_settings(folder: Path, environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """The settings of the user and the machine, in order; empty when git fails."""
    found = list_settings((), folder, guard_git(environment)) or ()
    return [(one.key, one.value) for one in found if one.scope in ("system", "global")]


def _find_last(settings: Iterable[tuple[str, str]], key: str, usual: str) -> str:
    values = [value for name, value in settings if name == key]
    return values[-1] if values else usual


def _add_settings(environment: Mapping[str, str], settings: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The environment with further settings behind its own: for git the last one counts."""
    given = environment.get("GIT_CONFIG_COUNT", "")
    first = int(given) if given.isascii() and given.isdigit() and len(given) < 5 else 0
    guarded = dict(environment)
    last = first
    for last, (key, value) in enumerate(settings, start=first + 1):
        guarded |= {f"GIT_CONFIG_KEY_{last - 1}": key, f"GIT_CONFIG_VALUE_{last - 1}": value}
    return {**guarded, "GIT_CONFIG_COUNT": str(last)}
