"""The supervisor of one command: it takes the run, runs the command, and writes down how it ended.

Nothing happens to it when its worker dies. It ends by itself soon after its command has. When it is killed, the command
is killed with it, and the folder says neither living nor ended: nobody can know what the command had done.
"""

from __future__ import annotations

import json
import os
import time

from holdfast.activities.process.proc import read_start_time
from holdfast.activities.supervision import run_folder as files
from holdfast.activities.supervision.child import CommandChild, adopt_orphans, refuse_dumps
from holdfast.activities.supervision.run_request import Request
from holdfast.activities.supervision.watch_child import CommandWatch, Lease, OutputBuffer, SignalPipe

_SIGNALS = 64
TAKEN_ANSWER = "taken"
"""The answer to a worker that wants to start what has been started."""


def main(folder: str) -> None:
    """Be the supervisor of the run in this folder. Never returns."""
    refuse_dumps()
    bell = SignalPipe()
    request = Request.unpack(_read_all(0))
    _supervise_command(folder, request, bell, _detach_process())
    os._exit(0)


def _read_all(descriptor: int) -> bytes:
    data = bytearray()
    while more := os.read(descriptor, 1_000_000):
        data += more
    return bytes(data)


def _detach_process() -> int:
    """Let go of what our worker gave us, save the pipe it reads our answer from."""
    answer = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.close(nothing)
    return answer


def _send_answer(descriptor: int, **fields: object) -> bool:
    """Whether our worker could be told."""
    try:
        os.write(descriptor, json.dumps(fields).encode())
        os.close(descriptor)
    except BrokenPipeError:
        return False
    return True


def _supervise_command(folder: str, request: Request, bell: SignalPipe, answer: int) -> None:
    try:
        lock = files.take_lock(folder)
    except OSError as error:
        _send_answer(answer, refused=_describe_error(error))
        return
    if (
        lock is None
        or files.read_file(folder, files.RUN_FILE) is not None
        or files.read_file(folder, files.STATUS_FILE) is not None
    ):
        _send_answer(answer, refused=TAKEN_ANSWER)
        return
    try:
        kept, lease, child = _prepare_run(folder, request)
    except OSError as error:  # no room, say; nothing has begun
        files.clear_run(folder)
        _send_answer(answer, refused=_describe_error(error))
        return
    # Asked before it counts, not after: whoever looks meanwhile waits, and never sees a run that is then taken back.
    if not _send_answer(answer, started=child.pid):  # nobody is there: whoever comes next begins it
        child.withdraw()
        files.clear_run(folder)
        return
    files.begin_run(folder)
    files.write_status(folder, _run_command(request, child, kept, lease, bell))


def _prepare_run(folder: str, request: Request) -> tuple[OutputBuffer, Lease, CommandChild]:
    """Everything that can fail, before anything begins."""
    adopt_orphans()
    files.reserve_status(folder)
    kept = OutputBuffer(os.path.join(folder, files.OUTPUT_FILE), request.most_bytes)
    os.close(os.open(os.path.join(folder, files.LEASE_FILE), os.O_WRONLY | os.O_CREAT, 0o600))
    lease = Lease(os.path.join(folder, files.LEASE_FILE), request.lease_seconds)
    child = CommandChild(request)
    own = os.getpid()
    run = {
        "key": request.key,
        "digest": request.digest,
        "supervisor": own,
        "born": read_start_time(own),
        "command": child.pid,
    }
    files.prepare_run(folder, {**run, "started": time.time(), "owner": request.owner or None})
    return kept, lease, child


def _run_command(
    request: Request, child: CommandChild, output: OutputBuffer, lease: Lease, bell: SignalPipe
) -> dict[str, object]:
    """The command from beginning to end; what is to be known of it."""
    started = time.time()
    failure = child.release()
    watch = CommandWatch(child, output, bell, sandboxed=request.sandboxed)
    why = watch.wait_until_over(lease, request.seconds, request.lease_seconds)
    left = watch.end_all(request.grace_seconds)
    why, code, error = classify_end(why, watch.code, failure, child.read_report() if request.sandboxed else None)
    if left:
        error = f"{error}; {left} processes could not be ended".removeprefix("; ")
    return {
        "why": why,
        "code": code,
        "started": started,
        "ended": time.time(),
        "bytes": output.total_bytes,
        "kept": output.kept_bytes,
        "error": error or output.error,
        "directory": child.read_end_folder() if request.follow else "",
    }


def classify_end(why: str, code: int | None, failure: str, report: bytes | None) -> tuple[str, int | None, str]:
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


def _describe_error(error: OSError) -> str:
    return f"{error.strerror or error}: {error.filename}" if error.filename else f"{error.strerror or error}"
