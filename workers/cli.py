"""The command `holdfast`: its tree of commands, and the one place where errors become a sentence and an exit code.

Starting must be quick, so nothing here imports Temporal; and nothing a command does may end in a traceback.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import NoReturn

import typer

from holdfast.workers.commands import approvals, catalogue, processes, turns
from holdfast.workers.commands.options import FAILED, INTERRUPTED, OK, UNREACHABLE, USAGE, example

app = typer.Typer(
    name="holdfast",
    help="Durable tool calls for AI assistants: held for approval, run when all are ready, answered once.",
    epilog=example("holdfast up", "holdfast demo"),
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
processes.register(app)
turns.register(app)
approvals.register(app)
catalogue.register(app)


def main() -> NoReturn:
    """Run the command line. Leaves without the interpreter's own shutdown, in which Temporal's core may abort."""
    code = _run(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (BrokenPipeError, ValueError, OSError):
            code = code or FAILED
    os._exit(code)


def _run(arguments: list[str]) -> int:
    try:
        app(arguments, prog_name="holdfast")
    except SystemExit as leaving:
        return _code(leaving.code)
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)
    except BrokenPipeError:
        return FAILED
    except Exception as error:
        return _complain(*_explained(error))
    return OK


def _code(code: object) -> int:
    if code is None:
        return OK
    return code if isinstance(code, int) else FAILED


def _explained(error: Exception) -> tuple[str, int]:
    """An exception as a sentence and an exit code."""
    from holdfast.content import plain
    from holdfast.errors import BadInput, HoldfastError, NoWorker, ServerUnavailable

    if os.environ.get("HOLDFAST_TRACEBACK"):
        traceback.print_exception(error)
    text = plain(str(error))
    if isinstance(error, BadInput):
        return text, USAGE
    if isinstance(error, ServerUnavailable | NoWorker):
        return text, UNREACHABLE
    if isinstance(error, HoldfastError):
        return text, FAILED
    return f"something went wrong inside: {type(error).__name__}: {text} (HOLDFAST_TRACEBACK=1 shows where)", FAILED


def _complain(text: str, code: int) -> int:
    sys.stderr.write(f"holdfast: {text}\n")
    return code


if __name__ == "__main__":
    main()
