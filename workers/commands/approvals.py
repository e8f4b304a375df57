"""`holdfast inbox`, `approve`, `deny`, `respond`: what waits, and what people say about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from holdfast.workers.commands.codes import FAILED, UNREACHABLE
from holdfast.workers.commands.options import (
    Address,
    Data,
    Json,
    emit,
    example,
    note,
    open_holdfast,
    run,
    say,
)

if TYPE_CHECKING:
    from holdfast.client import Holdfast

ID = "deploy-7/b1c2/1"
ApprovalIds = Annotated[
    list[str] | None, typer.Argument(metavar="APPROVAL", help="Approval ids, as the inbox lists them.")
]
AllOfTurn = Annotated[
    str | None,
    typer.Option("--turn", metavar="TURN", help="Instead of ids: everything that waits in this turn, as listed."),
]
Note = Annotated[str | None, typer.Option("--note", metavar="TEXT", help="Kept with the decision.")]
WhyNot = Annotated[str | None, typer.Option("--note", metavar="TEXT", help="Why; the model reads it.")]
By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who decides; else you at this host.")]


class Several(TyperCommand):
    """A command that takes several approvals, and says so without Python's name for it."""

    def get_help(self, ctx: Any) -> str:
        """The help."""
        return super().get_help(ctx).replace("APPROVAL <list[str]>", "APPROVAL...         ")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog=example("holdfast inbox", "holdfast inbox --turn deploy-7 --json"))(inbox)
    app.command(cls=Several, epilog=example(f"holdfast approve {ID}", "holdfast approve --turn deploy-7"))(approve)
    app.command(cls=Several, epilog=example(f'holdfast deny {ID} --note "not on a Friday" --stop-turn'))(deny)
    app.command(epilog=example(f'holdfast respond {ID} --content "It is 21 degrees."'))(respond)


def inbox(
    turn: Annotated[str | None, typer.Option("--turn", metavar="TURN", help="Only what waits in this turn.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="How many to show at most.")] = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """List everything that waits for a decision, in all turns, newest first."""

    async def work() -> None:
        from holdfast.workers import questions, render
        from holdfast.workers.waiting import turn_of

        found = await (await open_holdfast(data, address)).inbox()
        approvals = [item for item in found if turn in (None, turn_of(item))]
        turns = len({turn_of(item) for item in approvals})
        if json:
            shown = [item.model_dump(mode="json") for item in approvals[:limit]]
            emit({"approvals": shown, "total": len(approvals), "turns": turns})
        else:
            render.console().print(questions.inbox(approvals[:limit], total=len(approvals), turns=turns))

    run(work())


def approve(
    approvals: ApprovalIds = None,
    turn: AllOfTurn = None,
    note: Note = None,
    by: By = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Let calls run, each exactly as it was shown."""
    _decide(approvals, turn, "proceed_once", json, address, data, note=note, by=by)


def deny(
    approvals: ApprovalIds = None,
    turn: AllOfTurn = None,
    note: WhyNot = None,
    by: By = None,
    stop_turn: Annotated[bool, typer.Option("--stop-turn", help="End the whole turn as well.")] = False,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Refuse calls. The turn goes on and the model reads your note, unless you stop it."""
    _decide(approvals, turn, "cancel", json, address, data, note=note, by=by, stop_turn=stop_turn)


def respond(
    approval: Annotated[str, typer.Argument(metavar="APPROVAL", help="Approval id, as the inbox lists it.")],
    content: Annotated[str, typer.Option("--content", metavar="TEXT|-", help="The answer; - reads standard input.")],
    note: Note = None,
    by: By = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Answer in the tool's place: the call does not run, and the model reads your text."""
    from holdfast.errors import BadInput
    from holdfast.workers.reading import read_text

    answer = read_text(content)
    if not answer.strip():
        raise BadInput("--content is empty: what is the model to read?")
    _decide([approval], None, "respond", json, address, data, note=note, by=by, content=answer)


def _decide(
    approvals: list[str] | None,
    turn: str | None,
    outcome: str,
    json: bool,
    address: str | None,
    data: Path | None,
    *,
    stop_turn: bool = False,
    **details: Any,
) -> None:
    from holdfast.approvals import ApprovalId
    from holdfast.errors import BadInput

    if bool(approvals) == bool(turn):
        raise BadInput("say what is meant: approval ids, or --turn TURN for everything that waits in it, not both")
    for approval in approvals or ():
        ApprovalId.parse(approval)

    async def work() -> int:
        holdfast = await open_holdfast(data, address)
        chosen = await _listed(holdfast, turn, json) if turn else dict.fromkeys(approvals or ())
        stops = set(list(chosen)[-1:] if turn else chosen) if stop_turn else set()  # the others wait until it stops
        return await _decide_all(holdfast, chosen, stops, outcome, json, details)

    code = run(work())
    if code:
        raise typer.Exit(code)


async def _listed(holdfast: Holdfast, turn: str, json: bool) -> dict[str, str | None]:
    """Show everything that waits in a turn; its ids, each with the digest of what was shown."""
    from holdfast.errors import DecisionRefused
    from holdfast.workers import questions, render
    from holdfast.workers.waiting import waiting_in

    found = await waiting_in(holdfast, turn)
    if not found:
        raise DecisionRefused("not_waiting", f"nothing waits for a decision in turn {turn!r}")
    if not json:
        render.console().print(questions.approvals(found))
    return {item.approval_id: item.digest for item in found}


async def _decide_all(
    holdfast: Holdfast,
    chosen: dict[str, str | None],
    stops: set[str],
    outcome: str,
    json: bool,
    details: dict[str, Any],
) -> int:
    """Each by itself: one that is refused keeps none of the others back."""
    from holdfast.content import plain
    from holdfast.errors import DecisionRefused, HoldfastError, NoWorker, ServerUnavailable, TurnNotFound

    told: list[dict[str, Any]] = []
    said: list[str] = []
    code = 0
    for approval, digest in chosen.items():
        try:
            stop = approval in stops
            meant = await _meant(holdfast, approval, details) if outcome == "respond" else details
            answer = await holdfast.decide(approval, outcome, digest=digest, stop_turn=stop, **meant)
        except (DecisionRefused, TurnNotFound, NoWorker) as error:
            told.append({"approval_id": approval, "counted": False, "error": str(error), "code": _reason(error)})
            note(f"holdfast: {plain(str(error))}")
            code = max(code, UNREACHABLE if isinstance(error, ServerUnavailable | NoWorker) else FAILED)
            continue
        except HoldfastError:
            if told and json:
                emit({"decisions": told})
            raise
        told.append(
            {
                "approval_id": approval,
                "counted": True if answer else None,
                "call": answer.call if answer else None,
                "status": answer.status if answer else None,
                "by_signal": answer is None,
            }
        )
        said.append(_sentence(plain(approval), answer.status if answer else None))
    # After the last decision: whoever stops reading stops no decision.
    if json:
        emit({"decisions": told})
    elif said:
        say("\n".join(said))
    return code


async def _meant(holdfast: Holdfast, approval: str, details: dict[str, Any]) -> dict[str, Any]:
    """An option's number stands for the option, where the question is known."""
    from holdfast.workers.questions import chosen

    asked = next((item for item in await holdfast.inbox() if item.approval_id == approval), None)
    return {**details, "content": chosen(asked, details["content"])} if asked and asked.options else details


def _sentence(approval: str, status: str | None) -> str:
    if status is None:
        return f"{approval}: no worker answered, so the decision was left as a signal; it counts when a worker is back."
    became = "succeeded" if status == "success" else f"is {status.replace('_', ' ')}"
    return f"{approval}: decided; the call {became}."


def _reason(error: Exception) -> str:
    code = getattr(error, "code", None)
    return code if isinstance(code, str) else type(error).__name__
