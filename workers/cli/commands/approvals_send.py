"""Sending decisions from the command line: what is shown before, and what is printed of each result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from holdfast.client.client import Holdfast
from holdfast.domain.approvals.approval import ApprovalId
from holdfast.domain.turn.approval_view import ApprovalView
from holdfast.errors import BadInput, DecisionRefused, HoldfastError
from holdfast.workers.cli.open_client import open_holdfast, run_async
from holdfast.workers.cli.resolve_settings import resolve_client_settings
from holdfast.workers.lookup.approvals import fetch_pending_approval, fetch_waiting
from holdfast.workers.terminal import approval_text, render
from holdfast.workers.terminal.grant_store import GrantStore, open_grant_store
from holdfast.workers.terminal.grant_text import GrantWish
from holdfast.workers.terminal.live.send_decisions import (
    DecisionChoice,
    DecisionReport,
    decide_all,
    describe_choice,
    with_change,
    with_offer,
    with_option,
)
from holdfast.workers.terminal.output import print_json, print_note, print_text


def send_decisions(
    approvals: list[str] | None,
    turn: str | None,
    outcome: str,
    json: bool,
    address: str | None,
    data: Path | None,
    details: dict[str, Any],
    *,
    wish: GrantWish | None = None,
    stop_turn: bool = False,
    change: dict[str, Any] | None = None,
) -> None:
    """Send one decision on several approvals, or on all pending approvals of a turn; raises Exit with the exit code."""
    if bool(approvals) == bool(turn):
        raise BadInput("give approval ids, or --turn TURN for all pending approvals of a turn, not both")
    if wish and wish.number and len(approvals or ()) != 1:
        raise BadInput("--scope N is a grant that one approval offers: give one approval id")
    for approval in approvals or ():
        ApprovalId.parse(approval)

    async def send_chosen() -> int:
        holdfast = await open_holdfast(data, address)
        chosen = await _list_approvals(holdfast, turn, outcome, json) if turn else dict.fromkeys(approvals or ())
        # With --turn, only the last decision stops the turn: the others have to be applied before.
        stops = set(list(chosen)[-1:] if turn else chosen) if stop_turn else set()
        choices = [
            DecisionChoice(item, outcome, digest, {**details, "stop_turn": item in stops})
            for item, digest in chosen.items()
        ]
        meant = [await _resolve_choice(holdfast, choice, wish, change) for choice in choices]
        if wish and not json:
            _print_coverage(meant, wish)
        if not (wish and wish.save):
            return await _send_all(holdfast, meant, json, None)
        async with open_grant_store(resolve_client_settings(data)) as keeper:
            return await _send_all(holdfast, meant, json, keeper)

    code = run_async(send_chosen())
    if code:
        raise typer.Exit(code)


async def _list_approvals(holdfast: Holdfast, turn: str, outcome: str, json: bool) -> dict[str, str | None]:
    """Print the pending approvals of a turn; their ids, each with the digest of what was shown.

    Before an approval, the definitions of the servers' tools are printed too, each once.
    """
    found = await fetch_waiting(holdfast, turn)
    if not found:
        raise DecisionRefused("not_waiting", f"turn {turn!r} has no pending approval")
    if not json:
        render.build_console().print(approval_text.render_approvals(found))
        if outcome == "proceed_once":
            render.build_console().print(approval_text.render_definitions(await _find_tool_approvals(holdfast, found)))
    return {item.approval_id: item.digest for item in found}


async def _find_tool_approvals(holdfast: Holdfast, found: Sequence[ApprovalView]) -> list[ApprovalView]:
    """One approval of each server's tool, uncut if a worker answers."""
    whole = []
    for item in {item.tool: item for item in found if item.about}.values():
        try:
            whole.append((await fetch_pending_approval(holdfast, item.approval_id)).approval)
        except HoldfastError:
            whole.append(item)
    return whole


async def _resolve_choice(
    holdfast: Holdfast, choice: DecisionChoice, wish: GrantWish | None, change: dict[str, Any] | None
) -> DecisionChoice | DecisionReport:
    """The complete decision: with its grant, its change, or the chosen option of a question."""
    if wish:
        return await with_offer(holdfast, choice, wish)
    if change:
        return await with_change(holdfast, choice, change)
    return await with_option(holdfast, choice) if choice.outcome == "respond" else choice


def _print_coverage(meant: list[DecisionChoice | DecisionReport], wish: GrantWish) -> None:
    """Print what grants will cover, before any is given."""
    lines = [describe_choice(item, wish) for item in meant if isinstance(item, DecisionChoice)]
    if lines:
        print_text("\n".join(lines))


async def _send_all(
    holdfast: Holdfast, meant: list[DecisionChoice | DecisionReport], json: bool, keep_in: GrantStore | None
) -> int:
    reports: list[DecisionReport] = []
    try:
        async for item in decide_all(holdfast, meant, keep_in):
            reports.append(item)
            if not item.body["counted"] and item.code:
                print_note(f"holdfast: {item.sentence}")
    except HoldfastError:
        if reports and json:
            print_json({"decisions": [item.body for item in reports]})
        raise
    if json:
        print_json({"decisions": [item.body for item in reports]})
    elif sentences := [item.sentence for item in reports if item.body["counted"] is not False or not item.code]:
        print_text("\n".join(sentences))
    return max((item.code for item in reports), default=0)
