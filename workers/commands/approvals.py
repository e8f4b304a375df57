"""`holdfast inbox`, `approve`, `deny`, `respond`: what waits, and what people say about it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.workers.commands.options import (
    FAILED,
    UNREACHABLE,
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

ID = "deploy-7/b1c2/1"
ApprovalIds = Annotated[list[str], typer.Argument(metavar="APPROVAL", help="Approval ids, as the inbox lists them.")]
Note = Annotated[str | None, typer.Option("--note", help="Why; the model reads it when you deny.")]
By = Annotated[str | None, typer.Option("--by", help="Who decides; else you at this host.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog=example("holdfast inbox --json"))(inbox)
    app.command(epilog=example(f"holdfast approve {ID}"))(approve)
    app.command(epilog=example(f'holdfast deny {ID} --note "not on a Friday" --stop-turn'))(deny)
    app.command(epilog=example(f'holdfast respond {ID} --content "It is 21 degrees."'))(respond)


def inbox(json: Json = False, address: Address = None, data: Data = None) -> None:
    """List everything that waits for a decision, in all turns, newest first."""

    async def work() -> None:
        from holdfast.workers import render

        approvals = await (await open_holdfast(data, address)).inbox()
        if json:
            emit({"approvals": [item.model_dump(mode="json") for item in approvals]})
        else:
            render.console().print(render.inbox(approvals))

    run(work())


def approve(
    approvals: ApprovalIds,
    note: Note = None,
    by: By = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Let calls run, each exactly as it was shown."""
    _decide(approvals, "proceed_once", json, address, data, note=note, by=by)


def deny(
    approvals: ApprovalIds,
    note: Note = None,
    by: By = None,
    stop_turn: Annotated[bool, typer.Option("--stop-turn", help="End the whole turn as well.")] = False,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Refuse calls. The turn goes on and the model reads your note, unless you stop it."""
    _decide(approvals, "cancel", json, address, data, note=note, by=by, stop_turn=stop_turn)


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
    from holdfast.workers.reading import read_text

    _decide([approval], "respond", json, address, data, note=note, by=by, content=read_text(content))


def _decide(
    approvals: list[str], outcome: str, json: bool, address: str | None, data: Path | None, **details: Any
) -> None:
    code = run(_decide_all(approvals, outcome, json, address, data, details))
    if code:
        raise typer.Exit(code)


async def _decide_all(
    approvals: list[str], outcome: str, json: bool, address: str | None, data: Path | None, details: dict[str, Any]
) -> int:
    """Each by itself: one that is refused keeps none of the others back."""
    from holdfast.approvals import ApprovalId
    from holdfast.content import plain
    from holdfast.errors import DecisionRefused, HoldfastError, NoWorker, ServerUnavailable, TurnNotFound

    for approval in approvals:
        ApprovalId.parse(approval)
    holdfast = await open_holdfast(data, address)
    told: list[dict[str, Any]] = []
    code = 0
    for approval in dict.fromkeys(approvals):
        try:
            answer = await holdfast.decide(approval, outcome, **details)
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
        if not json:
            say(_sentence(plain(approval), answer.status if answer else None))
    if json:
        emit({"decisions": told})
    return code


def _sentence(approval: str, status: str | None) -> str:
    if status is None:
        return f"{approval}: no worker answered, so the decision was left as a signal; it counts when a worker is back."
    return f"{approval}: decided; the call is {status.replace('_', ' ')}."


def _reason(error: Exception) -> str:
    code = getattr(error, "code", None)
    return code if isinstance(code, str) else type(error).__name__
