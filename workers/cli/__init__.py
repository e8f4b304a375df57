"""The command `holdfast`: the one place where errors become a sentence and an exit code.

No command may end in a traceback, so this module imports almost nothing before it can catch errors.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import NoReturn

from holdfast.workers.exit_codes import FAILED, INTERRUPTED, OK, UNREACHABLE, USAGE


def main() -> NoReturn:
    """Run the command line and exit. Skips the interpreter's shutdown, in which Temporal's core may abort."""
    try:
        _open_streams()
        code = _run_arguments(sys.argv[1:])
        code = _flush_output() or code
    except KeyboardInterrupt:
        code = _print_error("interrupted", INTERRUPTED)
    if sidecar := sys.modules.get("holdfast.activities.process.sidecar"):
        sidecar.close_helpers()
    os._exit(code)


def _run_arguments(arguments: list[str]) -> int:
    try:
        from holdfast.util.process_secrets import protect_process

        protect_process()
        from holdfast.workers.cli.command_tree import run_command

        run_command(arguments)
    except SystemExit as leaving:
        return _print_error("interrupted", INTERRUPTED) if _was_interrupted(leaving) else _to_exit_code(leaving.code)
    except KeyboardInterrupt:
        return _print_error("interrupted", INTERRUPTED)
    except BrokenPipeError:
        return FAILED
    except Exception as error:
        return _print_error(*_explain_error(error))
    return OK


def _open_streams() -> None:
    """Replace closed standard streams by /dev/null, and escape characters that a stream cannot encode."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:  # or the next connection becomes standard output
        pass
    os.close(descriptor)
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _flush_output() -> int:
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError as error:
        return FAILED if error.errno == errno.EPIPE else _print_error(*_explain_error(error))
    except ValueError:
        return FAILED
    return OK


def _was_interrupted(leaving: SystemExit) -> bool:
    """Whether Ctrl-C caused this exit: Typer turns it into a SystemExit."""
    return leaving.__context__ is not None and isinstance(leaving.__context__.__cause__, KeyboardInterrupt)


def _to_exit_code(code: object) -> int:
    if code is None:
        return OK
    return code if isinstance(code, int) else FAILED


def _explain_error(error: Exception) -> tuple[str, int]:
    """The sentence and the exit code for an exception."""
    from holdfast.errors import BadInput, HoldfastError, NoWorker, ServerUnavailable, StoreUnavailable
    from holdfast.util.text import strip_controls

    if os.environ.get("HOLDFAST_TRACEBACK"):
        import traceback

        traceback.print_exception(error)
    text = strip_controls(str(error))
    if isinstance(error, BadInput):
        return text, USAGE
    if isinstance(error, ServerUnavailable | NoWorker | StoreUnavailable):
        return text, UNREACHABLE
    if isinstance(error, HoldfastError):
        return text, FAILED
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EBADF, errno.EIO):
        return f"cannot write: {os.strerror(error.errno).lower()}", FAILED
    return f"internal error: {type(error).__name__}: {text} (HOLDFAST_TRACEBACK=1 prints the traceback)", FAILED


def _print_error(text: str, code: int) -> int:
    try:
        sys.stderr.write(f"holdfast: {text}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass  # standard error is gone
    return code
