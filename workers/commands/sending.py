"""Saying something of approvals from the command line: what is shown before, what is sent, what is told after."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.workers.commands.options import client_settings, emit, note, open_holdfast, run, say

if TYPE_CHECKING:
    from holdfast.client import Holdfast
    from holdfast.views import ApprovalView
    from holdfast.workers.answers import Wish
    from holdfast.workers.deciding import Choice, Told
    from holdfast.workers.keeping_grants import Keeper


def send(
    approvals: list[str] | None,
    turn: str | None,
    outcome: str,
    json: bool,
    address: str | None,
    data: Path | None,
    details: dict[str, Any],
    *,
    wish: Wish | None = None,
    stop_turn: bool = False,
    change: dict[str, Any] | None = None,
) -> None:
    """Say the same of several approvals, or of everything that waits in a turn; leaves with the exit code."""
    from holdfast.approvals import ApprovalId
    from holdfast.errors import BadInput
    from holdfast.workers.deciding import Choice
    from holdfast.workers.keeping_grants import kept

    if bool(approvals) == bool(turn):
        raise BadInput("say what is meant: approval ids, or --turn TURN for everything that waits in it, not both")
    if wish and wish.number and len(approvals or ()) != 1:
        raise BadInput("--scope N is one of the answers to one question: give one approval id")
    for approval in approvals or ():
        ApprovalId.parse(approval)

    async def work() -> int:
        holdfast = await open_holdfast(data, address)
        chosen = await _listed(holdfast, turn, outcome, json) if turn else dict.fromkeys(approvals or ())
        stops = set(list(chosen)[-1:] if turn else chosen) if stop_turn else set()  # the others wait until it stops
        said = [
            Choice(item, outcome, digest, {**details, "stop_turn": item in stops}) for item, digest in chosen.items()
        ]
        meant = [await _meant(holdfast, choice, wish, change) for choice in said]
        if wish and not json:
            _foretell(meant, wish)
        if not (wish and wish.save):
            return await _send_all(holdfast, meant, json, None)
        async with kept(client_settings(data)) as keeper:
            return await _send_all(holdfast, meant, json, keeper)

    code = run(work())
    if code:
        raise typer.Exit(code)


async def _listed(holdfast: Holdfast, turn: str, outcome: str, json: bool) -> dict[str, str | None]:
    """Show everything that waits in a turn; its ids, each with the digest of what was shown.

    Whoever approves it sees what is known of servers' tools too, of each once.
    """
    from holdfast.errors import DecisionRefused
    from holdfast.workers import questions, render
    from holdfast.workers.waiting import waiting_in

    found = await waiting_in(holdfast, turn)
    if not found:
        raise DecisionRefused("not_waiting", f"nothing waits for a decision in turn {turn!r}")
    if not json:
        render.console().print(questions.approvals(found))
        if outcome == "proceed_once":
            render.console().print(questions.definitions(await _of_tools(holdfast, found)))
    return {item.approval_id: item.digest for item in found}


async def _of_tools(holdfast: Holdfast, found: Sequence[ApprovalView]) -> list[ApprovalView]:
    """One approval of each server's tool, whole as far as a worker answers."""
    from holdfast.errors import HoldfastError
    from holdfast.workers.asked import asked

    whole = []
    for item in {item.tool: item for item in found if item.about}.values():
        try:
            whole.append((await asked(holdfast, item.approval_id)).approval)
        except HoldfastError:
            whole.append(item)
    return whole


async def _meant(holdfast: Holdfast, choice: Choice, wish: Wish | None, change: dict[str, Any] | None) -> Choice | Told:
    """What is to be said, in full: which standing answer, which option of a question, which change."""
    from holdfast.workers.deciding import with_change, with_offer, with_option

    if wish:
        return await with_offer(holdfast, choice, wish)
    if change:
        return await with_change(holdfast, choice, change)
    return await with_option(holdfast, choice) if choice.outcome == "respond" else choice


def _foretell(meant: list[Choice | Told], wish: Wish) -> None:
    """Say what standing answers will cover, before any is given."""
    from holdfast.workers.deciding import Choice, foretold

    lines = [foretold(item, wish) for item in meant if isinstance(item, Choice)]
    if lines:
        say("\n".join(lines))


async def _send_all(holdfast: Holdfast, meant: list[Choice | Told], json: bool, keep_in: Keeper | None) -> int:
    from holdfast.errors import HoldfastError
    from holdfast.workers.deciding import decide_all

    told: list[Told] = []
    try:
        async for item in decide_all(holdfast, meant, keep_in):
            told.append(item)
            if not item.body["counted"] and item.code:
                note(f"holdfast: {item.sentence}")
    except HoldfastError:
        if told and json:
            emit({"decisions": [item.body for item in told]})
        raise
    if json:
        emit({"decisions": [item.body for item in told]})
    elif said := [item.sentence for item in told if item.body["counted"] is not False or not item.code]:
        say("\n".join(said))
    return max((item.code for item in told), default=0)
