"""Programs that are known to bring in what others wrote: by their name, or by what they are told to do."""

from __future__ import annotations

import re
from collections.abc import Mapping

from holdfast.activities.shell.model import Program

_ALWAYS = frozenset([
    "curl", "wget", "wget2", "aria2c", "http", "https", "xh", "lynx", "w3m", "links", "elinks", "ftp", "sftp", "tftp",
    "lftp", "ssh", "scp", "rsync", "mosh", "rsh", "rcp", "rlogin", "telnet", "nc", "ncat", "netcat", "socat", "dig",
    "host", "nslookup", "whois", "gh", "glab", "hub", "aws", "gcloud", "gsutil", "az", "doctl", "s3cmd", "rclone",
    "npx", "bunx", "uvx", "pipx", "youtube-dl", "yt-dlp", "svn", "psql", "mysql", "mongosh", "redis-cli", "kubectl",
    "helm", "mail", "mutt", "apt", "apt-get", "dnf", "yum", "apk", "pacman", "brew", "snap", "flatpak",
])  # fmt: skip
_INSTALLING = frozenset(["install", "i", "add", "ci", "update", "upgrade", "up", "download", "dlx", "exec", "view"])
_SOMETIMES: Mapping[str, frozenset[str]] = {
    "git": frozenset(["clone", "fetch", "pull", "push", "ls-remote", "submodule", "remote", "archive", "svn", "lfs"]),
    "hg": frozenset(["clone", "pull", "push", "incoming", "outgoing"]),
    **dict.fromkeys(["npm", "pnpm", "yarn", "bun", "deno"], _INSTALLING),
    **dict.fromkeys(["pip", "pip3", "conda", "mamba", "poetry", "pdm", "gem", "bundle", "composer"], _INSTALLING),
    "uv": _INSTALLING | {"pip", "sync", "lock", "run", "tool", "python"},
    "cargo": frozenset(["install", "fetch", "update", "add", "search", "publish"]),
    "go": frozenset(["get", "install", "mod"]),
    **dict.fromkeys(["docker", "podman", "nerdctl"], frozenset(["pull", "push", "build", "buildx", "search", "login"])),
    **dict.fromkeys(["terraform", "tofu"], frozenset(["init", "plan", "apply", "get"])),
    "openssl": frozenset(["s_client"]),
}  # fmt: skip
_CODE = re.compile(r"(sed|gsed|[gmn]?awk)")
"""Languages in which nobody fetches anything."""


def may_bring_in(program: Program) -> bool:
    """Is it known to read from elsewhere, or given code that may? Also one of which the name is not known."""
    name = program.known_name
    if name is None or name in _ALWAYS:
        return True
    if program.interprets_code and not _CODE.fullmatch(name):
        return True
    told = _SOMETIMES.get(name, frozenset())
    return bool(told) and any(word is None or word in told for word in program.normal[1:])
