"""The data folder: created, and checked for the doctor."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from holdfast.config.settings import Settings
from holdfast.errors import HoldfastError
from holdfast.util.findings import Finding, report_ok, report_problem, report_warning

FULL_BYTES, LOW_BYTES = 100_000_000, 1_000_000_000
FULL_FILES, LOW_FILES = 1_000, 20_000


def prepare_folder(data: Path) -> None:
    """Create the data folder, readable by its owner only.

    An existing one must belong to this user and not be writable by others: whoever can replace files in it can sign
    with its key. HoldfastError otherwise.
    """
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = data.stat()
        if status.st_uid == os.geteuid() and status.st_mode & stat.S_IWOTH:
            data.chmod(stat.S_IMODE(status.st_mode) & ~stat.S_IWOTH)
    except OSError as error:
        raise HoldfastError(f"the data folder {str(data)!r} cannot be created: {error.strerror or error}") from error
    if status.st_uid not in (os.geteuid(), 0):
        raise HoldfastError(
            f"the data folder {str(data)!r} belongs to another user, who could replace its files: choose another one "
            "with --data, or change its owner (chown)"
        )
    if not os.access(data, os.W_OK | os.X_OK):
        raise HoldfastError(f"the data folder {str(data)!r} cannot be written")


def check_folders(settings: Settings) -> Iterator[Finding]:
    """Check that the data folder is private and writable and its disk has room. OSError. Creates nothing."""
    data, parts = settings.data, (settings.payloads_folder, settings.outputs_folder)
    there = [folder for folder in (data, *parts) if folder.exists()]
    above = next(folder for folder in (data, *data.parents) if folder.exists())
    if not above.is_dir():
        yield report_problem(f"{above} is not a folder", "move it away, or set HOLDFAST_DATA")
        return
    for folder in (above, *there):
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            yield report_problem(
                f"{folder} cannot be written by this user", f"chown -R USER {folder}, or set HOLDFAST_DATA"
            )
            return
    yield (
        _check_privacy(data) if data in there else report_ok(f"{data} does not exist yet: the first worker creates it")
    )
    disks: dict[int, Path] = {}
    for folder in (above, *there, settings.workspace):
        if folder.exists():
            disks.setdefault(folder.stat().st_dev, folder)
    yield from map(_check_room, disks.values())


def _check_privacy(folder: Path) -> Finding:
    status = folder.stat()
    if _is_group_volume(status):
        return _check_volume(folder, status.st_gid)
    if stat.S_IMODE(status.st_mode) & 0o077:
        do = f"chmod 700 {folder}"
        if os.geteuid() not in (0, status.st_uid):
            do = f"ask its owner: chown {os.geteuid()} {folder} && {do}"
        return report_warning(f"other users can read {folder}, which holds arguments and results", do)
    return report_ok(f"{folder} exists, and only its owner can read it")


def _is_group_volume(status: os.stat_result) -> bool:
    """Whether it is the root of a Kubernetes volume with `fsGroup`: of our group, setgid and group-writable.

    Nobody in the pod may change that mode, and the kubelet would restore it, with every file below group-writable.
    """
    shared = stat.S_ISGID | stat.S_IRWXG
    return status.st_mode & shared == shared and status.st_gid in {os.getegid(), *os.getgroups()}


def _check_volume(folder: Path, group: int) -> Finding:
    """Check the modes of what is directly in a volume, since those of its root are fixed."""
    with os.scandir(folder) as found:
        modes = {one.path: one.stat(follow_symlinks=False) for one in found if not one.is_symlink()}
    exposed = sorted(path for path, one in modes.items() if one.st_mode & 0o077 and not _is_group_volume(one))
    if exposed:
        return report_warning(f"other users can read {exposed[0]}", f"chmod go-rwx {exposed[0]}")
    return report_ok(f"{folder} is a volume of group {group} (fsGroup), and only their owner can read the files in it")


def _check_room(folder: Path) -> Finding:
    """Check the free space and files on the disk of a folder."""
    disk = os.statvfs(folder)
    free, files = disk.f_bavail * disk.f_frsize, disk.f_favail if disk.f_files else LOW_FILES
    if disk.f_flag & os.ST_RDONLY:
        return report_problem(f"the disk of {folder} is read-only", "mount it for writing, or set HOLDFAST_DATA")
    says = f"{free / 1e9:,.1f} GB and room for {files:,} files free on the disk of {folder}"
    do = "free some space, or move the folder: nothing is recorded on a full disk, and calls are refused"
    if free < FULL_BYTES or files < FULL_FILES:
        return report_problem(f"only {says}", do)
    return report_warning(f"only {says}", do) if free < LOW_BYTES or files < LOW_FILES else report_ok(says)
