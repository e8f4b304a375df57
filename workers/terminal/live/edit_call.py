"""Changing a call before it runs: its text or arguments, given by options or edited (S25).

`editor` has the file and the editor; the turn checks the changed call.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from holdfast.client.client import Holdfast
from holdfast.client.turn import Turn
from holdfast.domain.calls.call import Call
from holdfast.domain.turn.approval_view import ApprovalView
from holdfast.domain.turn.update_bodies import DecisionResult
from holdfast.errors import BadInput, DecisionRefused, HoldfastError
from holdfast.util.json_values import digest_canonical
from holdfast.util.text_replacement import apply_replacement, find_replacement
from holdfast.workers.lookup.approvals import PendingApproval
from holdfast.workers.terminal.editor import get_editor_command, open_draft, run_editor
from holdfast.workers.terminal.input_files import parse_arguments, read_source, read_words
from holdfast.workers.terminal.render import quote_shell

CONTENT_LIMIT = 1_000_000
"""Characters of a changed text, as a decision takes them."""
EDITING_SECONDS = 900.0
"""How long others see that a call is being edited, if the end is never announced."""
RENEW_SECONDS = 600.0
END_SECONDS = 3.0
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,12}")


@dataclass(frozen=True)
class EditableText:
    """The editable text of a call: the file that it changes, one text of its arguments, or all arguments as JSON."""

    text: str
    suffix: str
    arguments: dict[str, Any] | None = None
    """All arguments of the call; None if one text of them is edited."""
    current: str | None = None
    """The present content of the file, if the text is the whole file as the call would leave it."""

    @property
    def option(self) -> str | None:
        """The option of `holdfast modify` that takes the same text from a file, if there is one."""
        if self.current is not None:
            return None
        return "--content " if self.arguments is None else "--arguments @"

    def build_change(self, typed: str) -> dict[str, Any] | None:
        """The fields of a decision that make this change; None for no change. BadInput when it cannot be sent."""
        if self.arguments is None:
            return {"content": _check_size(typed)}
        if self.current is not None:
            return {"arguments": self.arguments | _build_replacement(self.current, _check_size(typed))}
        arguments = parse_arguments(typed, "what you typed")
        return None if _is_same_json(arguments, self.arguments) else {"arguments": arguments}


class SentChange(NamedTuple):
    """A change that was sent, and its answer: None when it was left as a signal."""

    answer: DecisionResult | None


def build_editable(call: Call) -> EditableText:
    """Build the text that a person edits: the whole file, if the call replaces text in it; the argument that the tool
    names; else all arguments.
    """
    arguments = call.bound.arguments if call.bound else {}
    shown = call.confirmation
    text = arguments.get(shown.edits) if shown and shown.edits else None
    if shown and shown.current is not None and {"old_text", "new_text"} <= arguments.keys():
        whole = apply_replacement(shown.current, arguments)
        return EditableText(whole, find_suffix(arguments.get("path")), arguments, shown.current)
    if not isinstance(text, str):
        return EditableText(json.dumps(arguments, ensure_ascii=False, indent=2) + "\n", ".json", arguments)
    return EditableText(text, ".sh" if shown and shown.kind == "exec" else find_suffix(arguments.get("path")))


def read_change(content: str | None, arguments: str | None) -> dict[str, Any] | None:
    """The change that the options --content and --arguments give; None when they give none."""
    if content is not None and arguments is not None:
        raise BadInput("give --content or --arguments, not both")
    if content is not None:
        return {"content": _check_size(read_source(content, encoding="utf-8"))}
    if arguments is not None:
        return {"arguments": parse_arguments(read_words(arguments), "the value of --arguments")}
    return None


def is_new(change: dict[str, Any], pending: PendingApproval) -> bool:
    """Whether the change differs from the call's arguments."""
    now, edits = pending.call.bound.arguments if pending.call.bound else {}, pending.approval.edits
    if "arguments" in change:
        return not _is_same_json(change["arguments"], now)
    return edits is None or now.get(edits) != change["content"]


async def change_in_editor(
    holdfast: Holdfast, pending: PendingApproval, outcome: str, tell: Callable[[str], None], **details: Any
) -> SentChange | None:
    """Let a person edit the call, and send the change; None when nothing was changed.

    On an error, `tell` gets a message that names the file with the edited text.
    """
    approval, found, command = pending.approval, build_editable(pending.call), get_editor_command()
    turn = holdfast.get_turn(approval.approval_id.rsplit("/", 2)[0])
    with open_draft(f"{pending.call.id}{found.suffix}", found.text) as typed:
        try:
            async with announce_editing(turn, approval.approval_id, details.get("by") or holdfast.actor_name):
                await run_editor(command, typed.file)
            text = typed.read()
            change = found.build_change(text) if text != typed.before else None
            if change is None:
                return None
            return await send_change(holdfast, approval, outcome, change, **details)
        except (HoldfastError, asyncio.CancelledError):
            if file := typed.keep_file():
                again = f"holdfast modify {quote_shell(approval.approval_id)}"
                if found.option:
                    again = f"send it again: {again} {found.option}{quote_shell(str(file))}"
                else:
                    again = f"edit again: {again}"
                tell(f"Your text is in {file}; {again}")
            raise


async def send_change(
    holdfast: Holdfast, approval: ApprovalView, outcome: str, change: dict[str, Any], **details: Any
) -> SentChange:
    """Send a change of the approval that was shown; DecisionRefused when it is refused."""
    details = {"digest": approval.digest, **details, **change}
    try:
        return SentChange(await holdfast.decide(approval.approval_id, outcome, **details))
    except DecisionRefused as error:
        if error.code != "bad_change":
            raise
        raise DecisionRefused(error.code, f"the change was refused: {error}") from error


@asynccontextmanager
async def announce_editing(turn: Turn, approval_id: str, by: str) -> AsyncIterator[None]:
    """Show others that the call is open in an editor, until the end of the block."""
    await turn.note_editing(approval_id, by=by, seconds=EDITING_SECONDS)
    renewing = asyncio.create_task(_renew_announcement(turn, approval_id, by))
    try:
        yield
    finally:
        renewing.cancel()
        with suppress(HoldfastError, TimeoutError):  # it was decided meanwhile, or no worker answers
            async with asyncio.timeout(END_SECONDS):
                await turn.note_editing(approval_id, by=by, seconds=0)


async def _renew_announcement(turn: Turn, approval_id: str, by: str) -> None:
    while True:
        await asyncio.sleep(RENEW_SECONDS)
        with suppress(HoldfastError):
            await turn.note_editing(approval_id, by=by, seconds=EDITING_SECONDS)


def _is_same_json(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether both are the same JSON, where 1 is not true."""
    return digest_canonical(one) == digest_canonical(other)


def _build_replacement(current: str, edited: str) -> dict[str, Any]:
    if edited == current:
        raise BadInput("the text equals the present file: to leave it unchanged, deny the call")
    return find_replacement(current, edited)


def find_suffix(path: object) -> str:
    """The suffix of the changed file if it is plain, else `.txt`: a model chose it."""
    found = PurePosixPath(path).suffix if isinstance(path, str) else ""
    return found if _SUFFIX.fullmatch(found) else ".txt"


def _check_size(text: str) -> str:
    if len(text) > CONTENT_LIMIT:
        raise BadInput(f"the text has {len(text):,} characters, over the limit of {CONTENT_LIMIT:,}")
    return text
