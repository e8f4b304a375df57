"""One call from the command line: progress on standard error, then only what a model would read on standard output."""

from __future__ import annotations

import sys

from holdfast.client.client import Holdfast
from holdfast.client.turn import Turn
from holdfast.domain.content import Response
from holdfast.domain.turn.activity_io import LiveOutput
from holdfast.util.text import strip_controls
from holdfast.workers.exit_codes import FAILED, INTERRUPTED
from holdfast.workers.terminal import render
from holdfast.workers.terminal.follow_turn import ApprovalPrinter, follow_turn
from holdfast.workers.terminal.live.live_screen import follow_live
from holdfast.workers.terminal.output import is_interactive, print_json, print_note


async def call_and_wait(holdfast: Holdfast, turn: Turn, json: bool) -> int:
    """Wait for the one response of a turn; the exit code."""
    live = is_interactive() and not json
    stays = await (follow_live(holdfast, turn) if live else follow_turn(turn, ApprovalPrinter().print_item))
    if not stays:
        print_note(
            f"Detached; turn {turn.id} goes on. Come back with: holdfast turn watch {render.quote_shell(turn.id)}"
        )
        return INTERRUPTED
    result = await turn.result()
    [response] = result.responses
    if json:
        print_json({"turn": turn.id, "response": response.model_dump(mode="json")})
    else:
        _print_response(response)
    return 0 if response.status == "success" else FAILED


async def fetch_output(turn: Turn, call_id: str) -> LiveOutput:
    """The output of a running call, or the result of an ended one."""
    live = await turn.fetch_output(call_id)
    if live is not None:
        return live
    call = await turn.fetch_call(call_id)
    text = strip_controls("\n".join(part.text for part in call.response.parts)) if call.response else ""
    return LiveOutput(call_id=call_id, tail=text, total=len(text))


def _print_response(response: Response) -> None:
    if response.error:
        print_note(f"{response.status}: {strip_controls(response.error.message)}")
    for part in response.parts:
        text = strip_controls(part.text) if sys.stdout.isatty() else part.text
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    sys.stdout.flush()
