"""The disk: is there room, may we write, is it ours alone; and are payloads where they should be."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowHandle

from holdfast.domain.base import Unreadable
from holdfast.domain.turn.turn_io import TURN_WORKFLOW
from holdfast.util.findings import Finding, ok, problem, warning
from holdfast.workers.doctor.check import Check, CheckContext, run_in_thread
from holdfast.workers.lookup.task_queues import build_queue_query

FULL_BYTES, LOW_BYTES = 100_000_000, 1_000_000_000
FULL_FILES, LOW_FILES = 1_000, 20_000
RECENT_TURNS = 20
"""Turns whose payloads are looked for, the newest."""


async def _examine_folders(around: CheckContext) -> list[Finding]:
    settings = around.settings
    found = await run_in_thread(lambda: _examine_data(settings.data))
    if any(one.level == "problem" for one in found):
        return found
    rooms: dict[int, Finding] = {}
    for folder in (settings.data, settings.payloads_folder, settings.outputs_folder, settings.workspace):
        room = await run_in_thread(lambda folder=folder: _measure_room(folder))  # type: ignore[misc]
        rooms |= {room[0]: room[1]} if room and room[0] not in rooms else {}
    parts = await run_in_thread(
        lambda: [
            one for folder in (settings.payloads_folder, settings.outputs_folder) for one in _examine_writable(folder)
        ]
    )
    return [*found, *parts, *rooms.values()]


def _examine_data(folder: Path) -> list[Finding]:
    """The data folder itself."""
    try:
        there = folder.stat()
    except FileNotFoundError:
        above = next(parent for parent in folder.parents if parent.exists())
        if not os.access(above, os.W_OK | os.X_OK):
            return [
                problem(f"{folder} is not there and cannot be made", f"make {above} writable, or set HOLDFAST_DATA")
            ]
        return [ok(f"{folder} is not there yet: the first worker makes it")]
    except OSError as error:
        return [problem(f"{folder} cannot be looked at: {error.strerror}", "look at its disk, or set HOLDFAST_DATA")]
    if not stat.S_ISDIR(there.st_mode):
        return [problem(f"{folder} is not a folder", "move it away, or set HOLDFAST_DATA")]
    if wrong := _examine_writable(folder):
        return wrong
    if _is_group_volume(there):
        return [_examine_content(folder, there.st_gid)]
    if stat.S_IMODE(there.st_mode) & 0o077:
        do = f"chmod 700 {folder}"
        if os.geteuid() not in (0, there.st_uid):
            do = f"have its owner give it to this user: chown {os.geteuid()} {folder} && {do}"
        return [warning(f"others may look into {folder}, which holds arguments and results", do)]
    return [ok(f"{folder} is there, and for its owner alone")]


def _is_group_volume(there: os.stat_result) -> bool:
    """Is it as Kubernetes leaves the root of a volume for `fsGroup`: of our group, all of whose files are its?

    Nobody in the pod may change that mode, and the kubelet would put it back, with every file below it group-writable.
    """
    shared = stat.S_ISGID | stat.S_IRWXG
    return there.st_mode & shared == shared and there.st_gid in {os.getegid(), *os.getgroups()}


def _examine_content(folder: Path, group: int) -> Finding:
    """Of a volume, what stands between others and its content: the modes of what is directly in it."""
    with os.scandir(folder) as found:
        modes = {one.path: one.stat(follow_symlinks=False) for one in found if not one.is_symlink()}
    exposed = sorted(path for path, one in modes.items() if one.st_mode & 0o077 and not _is_group_volume(one))
    if exposed:
        return warning(f"others may look into {exposed[0]}, which only its owner should", f"chmod go-rwx {exposed[0]}")
    return ok(f"{folder} is a volume of group {group} (fsGroup), and what is in it is for its owner alone")


def _examine_writable(folder: Path) -> list[Finding]:
    if not folder.exists() or os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return []
    return [
        problem(f"{folder} cannot be written by this user", f"give it to whoever runs workers: chown -R USER {folder}")
    ]


def _measure_room(folder: Path) -> tuple[int, Finding] | None:
    """What is free where a folder is, by the number of its disk."""
    there = next((one for one in (folder, *folder.parents) if one.exists()), None)
    if there is None:
        return None
    found, disk = os.statvfs(there), there.stat().st_dev
    free, files = found.f_bavail * found.f_frsize, found.f_favail if found.f_files else LOW_FILES
    says = f"{_format_size(free)} free on the disk of {folder}"
    if found.f_flag & os.ST_RDONLY:
        return disk, problem(f"the disk of {folder} may only be read", "mount it for writing, or set HOLDFAST_DATA")
    do = "free some space, or move the folder: nothing is recorded on a full disk, and calls are refused"
    if free < FULL_BYTES or files < FULL_FILES:
        room = says if free < FULL_BYTES else f"room for {files:,} files on the disk of {folder}"
        return disk, problem(f"only {room}", do)
    if free < LOW_BYTES or files < LOW_FILES:
        room = says if free < LOW_BYTES else f"room for {files:,} files on the disk of {folder}"
        return disk, warning(f"only {room}", do)
    return disk, ok(says)


def _format_size(count: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1_000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1_000
    return f"{count:.1f} TB"


async def _examine_payloads(around: CheckContext) -> list[Finding]:
    """Payloads outside the history that others have stored: are they to be found from here?"""
    client, looked, lost = around.client, 0, []
    query = f'{build_queue_query(around.settings.task_queue, running=False)} AND WorkflowType = "{TURN_WORKFLOW}"'
    async for turn in client.list_workflows(query, limit=RECENT_TURNS):
        handle = client.get_workflow_handle(turn.id, run_id=turn.run_id)
        outside = [one for one in await _fetch_start_payloads(handle) if one.external_payloads]
        looked += len(outside)
        for payload in outside:
            try:
                [found] = await client.data_converter.decode([payload])
            except Exception:
                found = Unreadable("it was not to be had")
            lost += [turn.id] if isinstance(found, Unreadable) else []
    if lost:
        says = f"{len(lost)} of {looked} payloads of recent turns are not to be found from here, as of {lost[0]!r}"
        return [problem(says, "let clients and workers see the same payloads/ (docs/how-to/operating.md)")]
    return [ok(f"{looked} payloads of recent turns were looked for and found" if looked else "none to look for")]


async def _fetch_start_payloads(handle: WorkflowHandle[Any, Any]) -> list[Payload]:
    async for event in handle.fetch_history_events(page_size=1):
        return list(event.workflow_execution_started_event_attributes.input.payloads)
    return []


CHECKS = (
    Check("disk", _examine_folders),
    Check("payloads", _examine_payloads, seconds=20, remote=True),
)
