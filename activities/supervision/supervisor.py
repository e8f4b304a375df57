"""The supervisor of one command: it locks the run, runs the command, and records how it ended.

It survives its worker, and ends soon after its command. When it is killed, the command is killed with it, and the run
has neither a lock nor a status: it is lost, and nobody can know what the command did.
"""

from __future__ import annotations

import json
import os
import time

from holdfast.activities.process.proc import read_start_time
from holdfast.activities.supervision.child import CommandChild, adopt_orphans, refuse_dumps
from holdfast.activities.supervision.run_protocol import (
    LEASE_FILE,
    OUTPUT_FILE,
    RUN_FILE,
    STATUS_FILE,
    TAKEN_ANSWER,
    Request,
    begin_run,
    clear_run,
    prepare_run,
    read_file,
    reserve_status,
    take_lock,
    write_status,
)
from holdfast.activities.supervision.watch_child import CommandWatch, Lease, OutputBuffer, SignalPipe

_SIGNALS = 64


def main(folder: str) -> None:
    """Supervise the run in this folder; the request is on standard input. Never returns."""
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
    """Close the streams of the worker; a descriptor of the pipe on which it reads our answer."""
    answer = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.close(nothing)
    return answer


def _send_answer(descriptor: int, **fields: object) -> bool:
    """Whether the worker could read the answer."""
    try:
        os.write(descriptor, json.dumps(fields).encode())
        os.close(descriptor)
    except BrokenPipeError:
        return False
    return True


def _supervise_command(folder: str, request: Request, bell: SignalPipe, answer: int) -> None:
    try:
        lock = take_lock(folder)
    except OSError as error:
        _send_answer(answer, refused=_describe_error(error))
        return
    if lock is None or read_file(folder, RUN_FILE) is not None or read_file(folder, STATUS_FILE) is not None:
        _send_answer(answer, refused=TAKEN_ANSWER)
        return
    try:
        output, lease, child = _prepare_run(folder, request)
    except OSError as error:  # for example no space; nothing has begun
        clear_run(folder)
        _send_answer(answer, refused=_describe_error(error))
        return
    # Answered before the run counts: others who look meanwhile wait, and never see a run that is then withdrawn.
    if not _send_answer(answer, started=child.pid):  # the worker is gone: the next one begins the run
        child.withdraw()
        clear_run(folder)
        return
    begin_run(folder)
    write_status(folder, _run_command(request, child, output, lease, bell))


def _prepare_run(folder: str, request: Request) -> tuple[OutputBuffer, Lease, CommandChild]:
    """Do everything that can fail before the command begins. OSError when it fails."""
    adopt_orphans()
    reserve_status(folder)
    output = OutputBuffer(os.path.join(folder, OUTPUT_FILE), request.most_bytes)
    os.close(os.open(os.path.join(folder, LEASE_FILE), os.O_WRONLY | os.O_CREAT, 0o600))
    lease = Lease(os.path.join(folder, LEASE_FILE), request.lease_seconds)
    child = CommandChild(request)
    own = os.getpid()
    run = {
        "key": request.key,
        "digest": request.digest,
        "supervisor": own,
        "born": read_start_time(own),
        "command": child.pid,
    }
    prepare_run(folder, {**run, "started": time.time(), "owner": request.owner or None})
    return output, lease, child


def _run_command(
    request: Request, child: CommandChild, output: OutputBuffer, lease: Lease, bell: SignalPipe
) -> dict[str, object]:
    """Run the command to its end; the content of status.json."""
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
        "stored": output.stored_bytes,
        "error": error or output.error,
        "directory": child.read_end_folder() if request.follow else "",
    }


def classify_end(why: str, code: int | None, failure: str, report: bytes | None) -> tuple[str, int | None, str]:
    """Classify the end of the command: the reason, its exit code (negative for a signal), and the error in starting it.

    `report` is that of a sandbox, None without one. bubblewrap reports nothing for a command that it could not start,
    and a signal like a shell does, by a code above 128.
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
