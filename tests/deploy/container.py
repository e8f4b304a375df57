"""A container without an engine: what deploy/image/Dockerfile says, done with bubblewrap.

The installation is the recipe's own (install.sh). Around it: a user that is not root, no capabilities, a root that
cannot be written, process ids of its own with tini as the first, and the volumes. The base image is this machine.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.deploy.support import DEPLOY, ROOT, read
from tests.support.programs import require_program

OPT = "/opt/holdfast"


class Recipe(NamedTuple):
    """What the Dockerfile's last stage says of a container."""

    environment: Mapping[str, str]
    user: int
    folder: str
    entrypoint: list[str]
    command: list[str]
    health: list[str]
    extras: list[str]


def recipe() -> Recipe:
    """The Dockerfile, read."""
    text = re.sub(r"\\\n\s*", " ", read("image", "Dockerfile"))
    said = dict(re.findall(r"^(ENTRYPOINT|CMD|USER|WORKDIR|ENV|HEALTHCHECK) (.*)$", text, re.MULTILINE))
    [extras] = re.findall(r'^ARG EXTRAS="([^"]*)"', text, re.MULTILINE)
    pairs = re.findall(r'([A-Z_]+)=(?:"([^"]*)"|(\S+))', said["ENV"])
    return Recipe(
        environment={name: quoted or bare for name, quoted, bare in pairs},
        user=int(said["USER"].partition(":")[0]),
        folder=said["WORKDIR"],
        entrypoint=json.loads(said["ENTRYPOINT"]),
        command=json.loads(said["CMD"]),
        health=json.loads(said["HEALTHCHECK"].partition("CMD ")[2]),
        extras=extras.split(),
    )


def install(folder: Path, *extras: str) -> Path:
    """What the first stage leaves at /opt/holdfast, elsewhere; by somebody who lets nobody else read what they make."""
    target = folder / "holdfast"
    command = [str(DEPLOY / "image" / "install.sh"), str(target), *extras]
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(
        command, env=environment, umask=0o077, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [probe] = re.findall(r"&& (install .*healthy\.py)$", read("image", "Dockerfile"), re.MULTILINE)
    subprocess.run(probe.replace(OPT, str(target)).split(), cwd=ROOT, umask=0o077, timeout=60, check=True)
    return target


def container(installed: Path, *, data: Path, workspace: Path, config: Path | None = None, **more: str) -> list[str]:
    """The words before a command of the container. It shares this machine's network, as with `--network host`."""
    made = recipe()
    require_program("tini")
    base = Path(sys.base_prefix)
    for folder in (data, workspace, data / "payloads"):
        folder.mkdir(exist_ok=True)
    environment = {name: value.replace(OPT, str(installed)) for name, value in made.environment.items()}
    system = [word for path in ("/usr", "/etc") for word in ("--ro-bind", path, path)]
    links = [word for name in ("bin", "sbin", "lib", "lib64") for word in ("--symlink", f"usr/{name}", f"/{name}")]
    return [
        require_program("bwrap"),
        *("--unshare-user", "--uid", str(made.user), "--gid", str(made.user)),
        *("--unshare-pid", "--unshare-ipc", "--as-pid-1", "--die-with-parent", "--cap-drop", "ALL"),
        *system,
        *links,
        *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),
        *("--ro-bind", str(base), str(base), "--ro-bind", str(installed), str(installed)),
        *("--bind", str(data), "/data", "--bind", str(workspace), "/workspace"),
        *(("--ro-bind", str(config), "/etc-holdfast/holdfast.toml") if config else ()),
        *("--dir", made.folder, "--chdir", made.folder, "--remount-ro", "/", "--clearenv"),
        *(word for pair in {**environment, **more}.items() for word in ("--setenv", *pair)),
        "--",
    ]
