"""The guides of deploy/, done: their turn is started, approved over HTTP and answered by the very lines they tell.

What differs from one to the next is how a command is brought to where Holdfast runs (`docker exec`, `kubectl exec` …).
That is left out here; the rest runs as it is written.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from holdfast import Settings
from holdfast.workers.gateway import READY_LINE as GATEWAY_READY
from tests.deploy.support import SECONDS, Caller, checked, read
from tests.support.programs import require_program

BACKED_UP = ("grants_file", "mcp_logins_folder", "outputs_folder", "owner_key_file", "records_folder", "tokens_file")
"""Of a data folder, by their names in the settings."""
LEFT_BEHIND = ("host_file", "ledger_file", "runs_folder")
"""What is worth nothing on another host, or does harm there."""

THERE = (
    r"docker compose exec -T \S+ ",
    r"docker exec (?:--interactive )?\S+ ",
    r"kubectl --namespace holdfast exec (?:--stdin )?\S+ -- ",
    r"\bas /opt/holdfast/bin/(?=holdfast)",
)
"""How the guides bring a command to where it belongs."""
LEFT_OUT = (r"^kubectl .*port-forward.*&\n", r"^holdfast gateway.*&\n", r"^as\(\) \{\n(?:  .*\n)+\}\n", r"^cd .*\n")
"""What is done already, or has no place here."""


@pytest.fixture
async def running(server_address: str, tmp_path: Path) -> AsyncIterator[tuple[Caller, str]]:
    """A worker and a gateway, and where that listens; `holdfast` is on the path."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    require_program("curl")
    (bin_folder / "holdfast").symlink_to(Path(sys.executable).with_name("holdfast"))
    (bin_folder / "python3").symlink_to(sys.executable)
    there = {"TEMPORAL_ADDRESS": server_address, "HOLDFAST_TASK_QUEUE": f"q-{uuid4().hex[:8]}"}
    caller = Caller(tmp_path, [bin_folder / "holdfast"], PATH=f"{bin_folder}:/usr/local/bin:/usr/bin:/bin", **there)
    async with (
        caller.staying("worker"),
        caller.staying("gateway", "--port", "0", ready=GATEWAY_READY) as gateway,
    ):
        yield caller, gateway.said.split()[2].rstrip(",")


@pytest.mark.parametrize("folder", ["image", "compose", "kubernetes", "cloud", "systemd"])
async def test_S46_the_turn_of_a_guide_is_approved_over_http_by_its_own_lines(
    running: tuple[Caller, str], folder: str
) -> None:
    caller, url = running
    [block] = re.findall(r"^## A turn\n.*?^```sh\n(.*?)^```", read(folder, "README.md"), re.DOTALL | re.MULTILINE)
    for pattern in LEFT_OUT:
        block = re.sub(pattern, "", block, flags=re.MULTILINE)
    for pattern in THERE:
        block = re.sub(pattern, "", block)
    assert not re.search("docker|kubectl|/opt/", block)
    turn = f"t-{uuid4().hex}"
    script = block.replace("http://127.0.0.1:8234", url).replace("hello", turn)
    process = await asyncio.create_subprocess_exec(
        *("bash", "-euo", "pipefail", "-c", script),
        cwd=caller.folder,
        env=caller.environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(SECONDS):
        said, _ = await process.communicate()
    text = said.decode()
    assert process.returncode == 0, text
    assert '"counted": true' in text
    assert re.search(r"success", text)
    assert re.search(r"\b20\d\d\b", text), "the date"


@pytest.mark.parametrize("folder", ["compose", "kubernetes", "systemd"])
def test_the_backup_of_a_guide_has_all_of_a_data_folder_that_counts_elsewhere(folder: str, tmp_path: Path) -> None:
    """By the guide's own `tar`, on a data folder with all that a worker leaves in one."""
    settings = Settings(data=tmp_path / "data")
    for name in (*BACKED_UP, *LEFT_BEHIND):
        file: Path = getattr(settings, name)
        file = file if file.suffix or name == "host_file" else file / "one"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    [section] = re.findall(r"^## Back up\n(.*?)^## ", read(folder, "README.md"), re.DOTALL | re.MULTILINE)
    lines = re.findall(r"\btar -C \S+ (.*?-czf) \S+ \.(?:$| )", section.replace("\\\n", " "), re.MULTILINE)
    assert len(lines) == 1, "one, which leaves out by name: what is new is in it"
    kept = tmp_path / "kept.tar.gz"
    checked("bash", "-c", f"tar -C {settings.data} {lines[0]} {kept} .")
    with tarfile.open(kept) as opened:
        names = {name.removeprefix("./") for name in opened.getnames()}
    for name in BACKED_UP:
        assert str(getattr(settings, name).relative_to(settings.data)) in names, name
    for name in LEFT_BEHIND:
        assert str(getattr(settings, name).relative_to(settings.data)) not in names, name
