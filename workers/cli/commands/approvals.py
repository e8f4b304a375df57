"""`holdfast inbox`, `approve`, `deny`, `sign`, `respond`: pending approvals, and decisions on them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from holdfast.domain.approvals.approval import ACTION_ALIASES, DecisionAction
from holdfast.errors import BadInput
from holdfast.workers.cli.commands.approvals_send import send_decisions
from holdfast.workers.cli.open_client import open_holdfast, run_async
from holdfast.workers.cli.options import Address, Data, Expires, Json, format_example
from holdfast.workers.lookup.approvals import parse_turn_id
from holdfast.workers.terminal import approval_text, render
from holdfast.workers.terminal.grant_text import GrantWish
from holdfast.workers.terminal.input_files import read_text
from holdfast.workers.terminal.live.edit_call import read_change
from holdfast.workers.terminal.live.send_decisions import DecisionChoice, DecisionReport, with_offer
from holdfast.workers.terminal.output import print_json, print_note

ID = "deploy-7/b1c2/1"
ApprovalIds = Annotated[
    list[str] | None, typer.Argument(metavar="APPROVAL", help="Approval ids, as the inbox lists them.")
]
AllOfTurn = Annotated[
    str | None,
    typer.Option("--turn", metavar="TURN", help="Instead of ids: all pending approvals of this turn, as listed."),
]
Note = Annotated[str | None, typer.Option("--note", metavar="TEXT", help="Text to record with the decision.")]
RefusalNote = Annotated[str | None, typer.Option("--note", metavar="TEXT", help="Reason; the model reads it.")]
By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Name to record; default: login name and host.")]
Content = Annotated[
    str | None,
    typer.Option("--content", metavar="FILE|-", help="Run the call with this text instead of the one shown."),
]
Arguments = Annotated[
    str | None, typer.Option("--arguments", metavar="JSON|@FILE|-", help="Run the call with these arguments.")
]
Scope = Annotated[
    int | None,
    typer.Option("--scope", metavar="N", min=1, help="Give the grant with this number (see `turn show`)."),
]
Uses = Annotated[
    int | None,
    typer.Option("--uses", metavar="N", min=1, max=1_000_000, help="Limit the grant to this many further calls."),
]
Lasting = Annotated[Literal["turn", "session"], typer.Option("--for", help="The latest end of the grant.")]
Save = Annotated[
    bool,
    typer.Option(
        "--save", help="Save the grant permanently: in the shared ledger, else in the data folder of this host only."
    ),
]


class ApprovalsCommand(TyperCommand):
    """A command that takes several approvals. Its help shows `APPROVAL...`, not the Python type."""

    def get_help(self, ctx: Any) -> str:
        """The text of the help."""
        return super().get_help(ctx).replace("APPROVAL <list[str]>", "APPROVAL...         ")


def register_commands(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog=format_example("holdfast inbox", "holdfast inbox --turn deploy-7 --json"))(inbox)
    app.command(
        cls=ApprovalsCommand,
        epilog=format_example(
            f"holdfast approve {ID}",
            "holdfast approve --turn deploy-7",
            f"holdfast approve {ID} --always --expires 1h",
            f"holdfast approve {ID} --scope 2 --save",
        ),
    )(approve)
    app.command(
        cls=ApprovalsCommand,
        epilog=format_example(
            f'holdfast deny {ID} --note "not on a Friday" --stop-turn', f"holdfast deny {ID} --remember"
        ),
    )(deny)
    app.command(
        epilog=format_example(
            f"holdfast sign {ID} --outcome yes",
            f"holdfast sign {ID} --outcome proceed_always --scope 1 --uses 10",
            f'temporal workflow signal -w deploy-7 --name decide --input "$(holdfast sign {ID} --outcome yes)"',
        )
    )(sign)
    app.command(
        epilog=format_example(
            f'holdfast respond {ID} --content "It is 21 degrees."',
            f"""holdfast respond {ID} --content '{{"name": "Ana", "seats": 2}}'""",
        )
    )(respond)


def inbox(
    turn: Annotated[str | None, typer.Option("--turn", metavar="TURN", help="Only approvals of this turn.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Most approvals to show.")] = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """List the pending approvals of all turns: those with a near deadline first, then the newest."""

    async def print_inbox() -> None:
        found = await (await open_holdfast(data, address)).fetch_inbox()
        approvals = [item for item in found.approvals if turn in (None, parse_turn_id(item))]
        unread = {name: why for name, why in found.unread.items() if turn in (None, name)}
        turns = len({parse_turn_id(item) for item in approvals})
        if json:
            shown = [item.model_dump(mode="json") for item in approvals[:limit]]
            print_json({"approvals": shown, "total": len(approvals), "turns": turns, "unread": unread})
            return
        if approvals or not unread:
            render.build_console().print(
                approval_text.render_inbox(approvals[:limit], total=len(approvals), turns=turns)
            )
        for name, why in unread.items():
            print_note(render.format_line(f"Turn {name} may have pending approvals: {why}", 1_000))

    run_async(print_inbox())


def sign(
    approval: Annotated[str, typer.Argument(metavar="APPROVAL", help="An approval id, as the inbox lists it.")],
    outcome: Annotated[str, typer.Option("--outcome", metavar="OUTCOME", help="yes, no, respond, or another outcome.")],
    digest: Annotated[
        str | None, typer.Option("--digest", metavar="DIGEST", help="Digest of what was shown; default: look it up.")
    ] = None,
    content: Annotated[
        str | None, typer.Option("--content", metavar="TEXT", help="Answer, with --outcome respond.")
    ] = None,
    scope: Scope = None,
    uses: Uses = None,
    lasting: Lasting = "session",
    note: Note = None,
    stop_turn: Annotated[bool, typer.Option("--stop-turn", help="With a refusal: stop the turn.")] = False,
    expires: Expires = None,
    by: By = None,
    address: Address = None,
    data: Data = None,
) -> None:
    """Print a signed decision as JSON, and send nothing.

    It is the body of the signal or update `decide` of a turn: the `temporal` command or any Temporal SDK can deliver
    it. It is signed with the key of the data folder, or with the one that HOLDFAST_KEY names. A signed approval is
    valid for one day unless --expires is given. With --scope N it is a grant, or with `--outcome no` a lasting refusal.
    """

    async def print_signed() -> None:
        refuses = ACTION_ALIASES.get(outcome, outcome) == DecisionAction.CANCEL
        wish = _build_wish([], scope, uses=uses, expires=expires, lasting=lasting, save=False, refuses=refuses)
        details = {"note": note, "by": by, "content": content, "stop_turn": stop_turn, "expires": _to_expiry(expires)}
        choice = DecisionChoice(approval, outcome, digest=digest, details=details)
        holdfast = await open_holdfast(data, address)
        chosen = await with_offer(holdfast, choice, wish) if wish else choice
        if isinstance(chosen, DecisionReport):
            raise BadInput(chosen.sentence)
        decision = await holdfast.prepare_decision(
            chosen.approval, chosen.outcome, digest=chosen.digest, **chosen.details
        )
        if decision.signature is None:
            raise BadInput("there is no key to sign with: `holdfast up` makes one, or HOLDFAST_KEY names yours")
        print_json(decision.model_dump(mode="json", exclude_defaults=True))

    run_async(print_signed())


def approve(
    approvals: ApprovalIds = None,
    turn: AllOfTurn = None,
    always: Annotated[bool, typer.Option("--always", help="Also allow later calls like this.")] = False,
    always_tool: Annotated[bool, typer.Option("--always-tool", help="Also allow all later calls of the tool.")] = False,
    always_server: Annotated[
        bool, typer.Option("--always-server", help="Also allow all later calls of the tools of its server.")
    ] = False,
    scope: Scope = None,
    uses: Uses = None,
    expires: Expires = None,
    lasting: Lasting = "session",
    save: Save = False,
    content: Content = None,
    arguments: Arguments = None,
    note: Note = None,
    by: By = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Let calls run, each exactly as it was shown: once, or also later calls (a grant).

    What a grant covers is printed before it is given. `holdfast grants` lists and revokes grants.
    """
    kinds = {
        DecisionAction.PROCEED_ALWAYS: always,
        DecisionAction.PROCEED_ALWAYS_TOOL: always_tool,
        DecisionAction.PROCEED_ALWAYS_SERVER: always_server,
    }
    wanted: list[DecisionAction | None] = [kind for kind, is_given in kinds.items() if is_given]
    wish = _build_wish(wanted, scope, uses=uses, expires=expires, lasting=lasting, save=save)
    change = read_change(content, arguments)
    if change and (wish or len(approvals or ()) != 1):
        raise BadInput(
            "--content and --arguments change one call: give one approval id, and no grant (--always, --scope)"
        )
    details = {"note": note, "by": by, "expires": wish.expires if wish else _to_expiry(expires)}
    send_decisions(approvals, turn, "proceed_once", json, address, data, details, wish=wish, change=change)


def deny(
    approvals: ApprovalIds = None,
    turn: AllOfTurn = None,
    note: RefusalNote = None,
    by: By = None,
    stop_turn: Annotated[bool, typer.Option("--stop-turn", help="Also stop the turn.")] = False,
    remember: Annotated[bool, typer.Option("--remember", help="Also refuse later calls like this.")] = False,
    scope: Scope = None,
    expires: Expires = None,
    lasting: Lasting = "session",
    save: Save = False,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Refuse calls. The turn goes on and the model reads your note, unless --stop-turn is given."""
    any_kind: list[DecisionAction | None] = [None] if remember else []
    wish = _build_wish(any_kind, scope, expires=expires, lasting=lasting, save=save, refuses=True)
    details = {"note": note, "by": by, "expires": wish.expires if wish else _to_expiry(expires)}
    send_decisions(approvals, turn, "cancel", json, address, data, details, wish=wish, stop_turn=stop_turn)


def respond(
    approval: Annotated[str, typer.Argument(metavar="APPROVAL", help="Approval id, as the inbox lists it.")],
    content: Annotated[str, typer.Option("--content", metavar="TEXT|-", help="Answer; of a form as JSON; - is stdin.")],
    note: Note = None,
    by: By = None,
    json: Json = False,
    address: Address = None,
    data: Data = None,
) -> None:
    """Answer a question, or answer in the tool's place.

    A tool that asks a question continues with your answer; `holdfast deny` declines to answer. Any other call does not
    run, and the model reads your text instead of its result.
    """
    answer = read_text(content)
    if not answer.strip():
        raise BadInput("--content is empty: give the answer")
    send_decisions([approval], None, "respond", json, address, data, {"note": note, "by": by, "content": answer})


def _build_wish(
    wanted: list[DecisionAction | None],
    number: int | None,
    *,
    expires: int | None,
    lasting: Literal["turn", "session"],
    save: bool,
    uses: int | None = None,
    refuses: bool = False,
) -> GrantWish | None:
    """The grant that the options ask for; None when they ask for none."""
    if len(wanted) > 1 or (number and wanted not in ([], [None], [DecisionAction.PROCEED_ALWAYS])):
        raise BadInput("give only one of --always, --always-tool, --always-server and --scope N: each is another grant")
    if not wanted and number is None:
        if uses or save or lasting == "turn" or (refuses and expires):
            options = "--for, --save and --expires" if refuses else "--uses, --for and --save"
            how = "--remember" if refuses else "--always"
            raise BadInput(f"{options} are options of a grant: add {how}, or --scope N")
        return None
    if save and uses:
        raise BadInput("a grant for a number of calls cannot be saved: leave out --uses or --save")
    kind = wanted[0] if wanted and number is None else None
    return GrantWish(refuses, kind, number, uses, lasting, _to_expiry(expires), save)


def _to_expiry(seconds: int | None) -> datetime | None:
    return None if seconds is None else datetime.now(UTC) + timedelta(seconds=seconds)
