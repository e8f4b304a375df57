"""The supervisor of one command: it takes the run, runs the command, and writes down how it ended.

Nothing happens to it when its worker dies. It ends by itself soon after its command has. When it is killed, the command
is killed with it, and the folder says neither living nor ended: nobody can know what the command had done.
"""

from __future__ import annotations

import json
import os
import time

from holdfast.activities.supervision import folder as files
from holdfast.activities.supervision.request import Request
from holdfast.activities.supervision.spawning import Child, adopt, refuse_dumps
from holdfast.activities.supervision.trees import born
from holdfast.activities.supervision.watching import Bell, Kept, Lease, Watch

_SIGNALS = 64
TAKEN = "taken"
"""The answer to a worker that wants to start what has been started."""


def main(folder: str) -> None:
    """Be the supervisor of the run in this folder. Never returns."""
    refuse_dumps()
    bell = Bell()
    request = Request.unpacked(_read_all(0))
    _supervise(folder, request, bell, _detached())
    os._exit(0)


def _read_all(descriptor: int) -> bytes:
    data = bytearray()
    while more := os.read(descriptor, 1_000_000):
        data += more
    return bytes(data)


def _detached() -> int:
    """Let go of what our worker gave us, save the pipe it reads our answer from."""
    answer = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.close(nothing)
    return answer


def _answer(descriptor: int, **said: object) -> bool:
    """Whether our worker could be told."""
    try:
        os.write(descriptor, json.dumps(said).encode())
        os.close(descriptor)
    except BrokenPipeError:
        return False
    return True


def _supervise(folder: str, request: Request, bell: Bell, answer: int) -> None:
    try:
        lock = files.take(folder)
    except OSError as error:
        _answer(answer, refused=_words(error))
        return
    if lock is None or files.read(folder, files.RUN) is not None or files.read(folder, files.STATUS) is not None:
        _answer(answer, refused=TAKEN)
        return
    try:
        kept, lease, child = _prepare(folder, request)
    except OSError as error:  # no room, say; nothing has begun
        files.clear(folder)
        _answer(answer, refused=_words(error))
        return
    # Asked before it counts, not after: whoever looks meanwhile waits, and never sees a run that is then taken back.
    if not _answer(answer, started=child.pid):  # nobody is there: whoever comes next begins it
        child.withdraw()
        files.clear(folder)
        return
    files.begin_run(folder)
    files.write_status(folder, _run(request, child, kept, lease, bell))


def _prepare(folder: str, request: Request) -> tuple[Kept, Lease, Child]:
    """Everything that can fail, before anything begins."""
    adopt()
    files.reserve(folder)
    kept = Kept(os.path.join(folder, files.OUTPUT), request.most_bytes)
    os.close(os.open(os.path.join(folder, files.LEASE), os.O_WRONLY | os.O_CREAT, 0o600))
    lease = Lease(os.path.join(folder, files.LEASE), request.lease_seconds)
    child = Child(request)
    own = os.getpid()
    run = {"key": request.key, "digest": request.digest, "supervisor": own, "born": born(own), "command": child.pid}
    files.prepare_run(folder, {**run, "started": time.time(), "owner": request.owner or None})
    return kept, lease, child


def _run(request: Request, child: Child, kept: Kept, lease: Lease, bell: Bell) -> dict[str, object]:
    """The command from beginning to end; what is to be known of it."""
    started = time.time()
    failure = child.release()
    watch = Watch(child, kept, bell, sandboxed=request.sandboxed)
    why = watch.until_over(lease, request.seconds, request.lease_seconds)
    left = watch.end_all(request.grace_seconds)
    why, code, error = verdict(why, watch.code, failure, child.reported() if request.sandboxed else None)
    if left:
        error = f"{error}; {left} processes could not be ended".removeprefix("; ")
    return {
        "why": why,
        "code": code,
        "started": started,
        "ended": time.time(),
        "bytes": kept.bytes,
        "kept": kept.kept,
        "error": error or kept.error,
        "directory": child.ended_in() if request.follow else "",
    }


def verdict(why: str, code: int | None, failure: str, report: bytes | None) -> tuple[str, int | None, str]:
    """Why it is over, its exit code (negative for a signal) and what went wrong with starting it.

    `report` is what a sandbox said. It says nothing of a command that it could not start, and tells of a signal as a
    shell does, by a code above 128.
    """
    if failure:
        return "not_started", None, failure
    if report is None or code is None:
        return why, code, ""
    if why == "exited" and code == 1 and b'"exit-code"' not in report:
        return "not_started", None, "the sandbox could not start the command; its output says why"
    return why, 128 - code if 128 < code <= 128 + _SIGNALS else code, ""


def _words(error: OSError) -> str:
    return f"{error.strerror or error}: {error.filename}" if error.filename else f"{error.strerror or error}"
