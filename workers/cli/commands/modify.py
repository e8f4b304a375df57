"""`holdfast modify`: change a call before it runs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.client.client import Holdfast
from holdfast.domain.approvals.approval import ApprovalId
from holdfast.domain.calls.call import Status
from holdfast.domain.turn import approval_view
from holdfast.errors import BadInput, DecisionRefused
from holdfast.workers.cli.open_client import open_holdfast, run_async
from holdfast.workers.cli.options import Address, Data, Json, format_example
from holdfast.workers.lookup.approvals import PendingApproval, fetch_pending_approval
from holdfast.workers.terminal import approval_text, render
from holdfast.workers.terminal.approval_text import QUESTION_KIND, format_decide_command
from holdfast.workers.terminal.live.edit_call import SentChange, change_in_editor, is_new, read_change, send_change
from holdfast.workers.terminal.live.send_decisions import describe_decision
from holdfast.workers.terminal.output import is_interactive, print_answer, print_json, print_note, print_text

ID = "deploy-7/b1c2/1"


def register_commands(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=format_example(
            f"holdfast modify {ID}",
            f"holdfast modify {ID} --content better.py",
            f"""holdfast modify {ID} --arguments '{{"command": "make -n"}}' --approve""",
        )
    )(modify)


def modify(
    approval: Annotated[str, typer.Argument(metavar="APPROVAL", help="Approval id, as the inbox lists it.")],
    content: Annotated[
        str | None,
        typer.Option("--content", metavar="FILE|-", help="New text of the call, where its tool lets people edit one."),
    ] = None,
    arguments: Annotated[
        str | None, typer.Option("--arguments", metavar="JSON|@FILE|-", help="New arguments of the call, all of them.")
    ] = None,
    approve: Annotated[
        bool, typer.Option("--approve", help="Run the changed call at once, instead of asking again.")
    ] = False,
    remark: Annotated[
        str | None, typer.Option("--note", metavar="TEXT", help="Text to record with the decision.")
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="Name to record; default: login name and host.")
    ] = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Change a call: its text in your editor (VISUAL, EDITOR), or with --content or --arguments.

    The changed call is checked and asked about again, with its new diff; with --approve it runs at once. The model
    reads what was changed and by whom. While your editor is open, others see that.
    """
    ApprovalId.parse(approval)
    change = read_change(content, arguments)
    if change is None and not is_interactive():
        raise BadInput("an editor needs a terminal: give the change with --content or --arguments")
    outcome = "proceed_once" if approve else "modify"
    details = {"note": remark, "by": by}

    async def change_call() -> None:
        holdfast = await open_holdfast(data, address)
        found = await _fetch_approval(holdfast, approval)
        sent = await _send_change(holdfast, found, outcome, change, details)
        if sent is None:
            body = {"approval_id": approval, "counted": False, "changed": False}
            print_answer(json, f"{approval}: no change, so nothing was sent.", **body)
        else:
            await _print_result(holdfast, found, sent, json)

    run_async(change_call())


async def _fetch_approval(holdfast: Holdfast, approval: str) -> PendingApproval:
    found = await fetch_pending_approval(holdfast, approval)
    if found.approval.kind == QUESTION_KIND:
        raise DecisionRefused("needs_answer", f"this is a question: {format_decide_command(approval, QUESTION_KIND)}")
    return found


async def _send_change(
    holdfast: Holdfast, pending: PendingApproval, outcome: str, change: dict[str, Any] | None, details: dict[str, Any]
) -> SentChange | None:
    """Send the change, given or edited; None when it changes nothing."""
    if change is None:
        return await change_in_editor(holdfast, pending, outcome, print_note, **details)
    return (
        await send_change(holdfast, pending.approval, outcome, change, **details) if is_new(change, pending) else None
    )


async def _print_result(holdfast: Holdfast, pending: PendingApproval, sent: SentChange, json: bool) -> None:
    """Print the result; the new approval if the call is asked about again."""
    approval, taken = pending.approval.approval_id, sent.answer
    turn = holdfast.get_turn(approval.rsplit("/", 2)[0])
    call = await turn.fetch_call(pending.call.id) if taken else None
    again = call and call.status is Status.AWAITING_APPROVAL and call.revision > pending.call.revision
    shown = approval_view.build_whole_approval(turn.id, call) if call and again else None
    if json:
        became = {"call": taken.call, "status": taken.status} if taken else {"call": None, "status": None}
        body = {"approval_id": approval, "counted": True if taken else None, "changed": True, **became}
        print_json({**body, "by_signal": taken is None, "asked": shown.model_dump(mode="json") if shown else None})
    elif shown:
        render.build_console().print(approval_text.render_approvals([shown]))
        print_text(
            f"Changed; it needs approval again: {approval_text.format_decide_command(shown.approval_id, shown.kind)}"
        )
    else:
        print_text(describe_decision(approval, taken))
