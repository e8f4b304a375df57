"""What an application imports: start turns, decide, watch, list what waits.

    holdfast = Holdfast(await connect())
    turn = await holdfast.start(TurnInput(batches=[[CallRequest(tool="shell", arguments={"command": "ls"})]]))
    async for item in turn.watch():
        ...

Watching long-polls the history and asks the turn by query; nothing a viewer does is in the history (S40).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pydantic import ValidationError
from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.service import RPCError

from holdfast.client.error_mapping import translate_error
from holdfast.client.handle import whoami
from holdfast.client.queries import query_turn
from holdfast.client.session import Session
from holdfast.client.turn import UPDATE_SECONDS, Turn
from holdfast.client.turn_reader import own_of, read_memo
from holdfast.client.watch import TurnFeeds
from holdfast.domain.approvals.approval import (
    ACTION_ALIASES,
    ALWAYS_ACTIONS,
    ApprovalId,
    Decision,
    DecisionAction,
    Lasting,
    Scope,
)
from holdfast.domain.base import describe_problems
from holdfast.domain.turn.ids import ID_MARK
from holdfast.domain.turn.turn_io import TASK_QUEUE, TURN_WORKFLOW, TurnInput, check_input, check_outside, check_size
from holdfast.domain.turn.update_bodies import DecisionResult
from holdfast.domain.turn.views import ApprovalView, InboxView, TurnView, drop_stale_editors, urgency_key
from holdfast.errors import BadInput, HoldfastError, PayloadUnreadable
from holdfast.names import STATE_ATTRIBUTE
from holdfast.util.text import shorten_text

if TYPE_CHECKING:
    from holdfast.client.signing_keys import Signer

__all__ = ["Holdfast", "Session", "Turn"]

FETCH_SECONDS = 2.0
"""How long an inbox waits for a turn that has more to show than its memo holds."""


class Holdfast:
    """Holdfast over a connected Temporal client (one with `HoldfastPlugin`).

    `signer` signs its decisions; else the key of the plugin's data folder does, if `holdfast up` made one.
    """

    def __init__(self, client: Client, *, task_queue: str = TASK_QUEUE, signer: Signer | None = None) -> None:
        self.client = client
        self.task_queue = task_queue
        self._signer = signer or _find_signer(client)
        self._feeds = TurnFeeds(client)

    @property
    def actor_name(self) -> str:
        """In whose name things are done here, when no other is given."""
        return self._signer.name if self._signer else whoami()

    def get_turn(self, turn_id: str) -> Turn:
        """A turn by its id; nothing is asked of the server yet."""
        return Turn(self.client, turn_id, self._feeds)

    def get_session(self, session_id: str | None = None) -> Session:
        """A session by its id, or a new one; nothing is asked of the server yet."""
        session_id = f"session-{uuid4().hex[:12]}" if session_id is None else session_id
        if not session_id.strip() or len(session_id) > 400 or ID_MARK in session_id:
            raise BadInput(f"a session's id has between 1 and 400 characters, and no {ID_MARK}")
        return Session(self.client, session_id, self._feeds, self.task_queue, self.actor_name)

    async def start(self, input: TurnInput, *, turn_id: str | None = None) -> Turn:
        """Start a turn. An id that is in use, or was, is refused."""
        check_outside(input)
        check_input(input)
        check_size(len(input.model_dump_json()))
        turn_id = turn_id or f"turn-{uuid4().hex[:12]}"
        input = input if input.requester else input.model_copy(update={"requester": self.actor_name})
        if not turn_id.strip() or len(turn_id) > 500:
            raise BadInput("a turn's id has between 1 and 500 characters")
        if ID_MARK in turn_id:
            raise BadInput(f"a turn's id has no {ID_MARK}: that is for the turns of sessions")
        try:
            await self.client.start_workflow(
                TURN_WORKFLOW,
                input,
                id=turn_id,
                task_queue=self.task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                static_summary=_summarise_input(input),
            )
        except Exception as error:
            raise translate_error(error, turn_id) from error
        return self.get_turn(turn_id)

    async def approve(
        self,
        approval_id: str,
        *,
        digest: str | None = None,
        by: str | None = None,
        note: str | None = None,
        content: str | None = None,
        arguments: dict[str, Any] | None = None,
        seconds: float = UPDATE_SECONDS,
    ) -> DecisionResult | None:
        """Let one call run once, as it was shown, or with new `content` or `arguments`. See `decide`."""
        return await self.decide(
            approval_id,
            DecisionAction.PROCEED_ONCE,
            digest=digest,
            by=by,
            note=note,
            content=content,
            arguments=arguments,
            seconds=seconds,
        )

    async def deny(
        self,
        approval_id: str,
        *,
        digest: str | None = None,
        by: str | None = None,
        note: str | None = None,
        scope: Scope | None = None,
        remember: bool = False,
        lasting: Lasting = "session",
        stop_turn: bool = False,
        seconds: float = UPDATE_SECONDS,
    ) -> DecisionResult | None:
        """Refuse one call; the model reads the `note`. See `decide`."""
        return await self.decide(
            approval_id,
            DecisionAction.CANCEL,
            digest=digest,
            by=by,
            note=note,
            scope=scope,
            remember=remember,
            lasting=lasting,
            stop_turn=stop_turn,
            seconds=seconds,
        )

    async def decide(
        self,
        approval_id: str,
        outcome: DecisionAction | str,
        *,
        digest: str | None = None,
        by: str | None = None,
        note: str | None = None,
        content: str | None = None,
        arguments: dict[str, Any] | None = None,
        scope: Scope | None = None,
        remember: bool = False,
        uses: int | None = None,
        lasting: Lasting = "session",
        expires: datetime | None = None,
        stop_turn: bool = False,
        decision_id: str | None = None,
        seconds: float = UPDATE_SECONDS,
    ) -> DecisionResult | None:
        """Decide on one approval, addressed by its id alone.

        `outcome`: what to do, `DecisionAction` or one of its names and aliases (`yes`, `no`, `yes_always`).
        `digest`: of what was shown; None looks it up, which approves whatever waits now.
        `by`: the name of the person; None is the signer's, or the login name of this process.
        `content`, `arguments`: what is to run instead (S25), or the answer to a question.
        `scope`, `uses`, `lasting`, `expires`: how far and how long a grant reaches; None is the narrowest offer,
        without a limit. `remember`: a refusal leaves a grant too. `stop_turn`: a refusal ends the turn.
        `decision_id`: the same id counts once; None makes a new one.

        Sent as an update. When updates are exhausted, or no worker answers within `seconds`, it is sent as a signal and
        the answer is None: it counts when a worker is back. Raises DecisionRefused when it does not count, BadInput
        when it cannot be a decision, TurnNotFound, ServerUnavailable.
        """
        decision = await self.prepare_decision(
            approval_id,
            outcome,
            digest=digest,
            by=by,
            note=note,
            content=content,
            arguments=arguments,
            scope=scope,
            remember=remember,
            uses=uses,
            lasting=lasting,
            expires=expires,
            stop_turn=stop_turn,
            decision_id=decision_id,
        )
        return await self.get_turn(ApprovalId.parse(approval_id).turn).decide(decision, seconds=seconds)

    async def prepare_decision(
        self,
        approval_id: str,
        outcome: DecisionAction | str,
        *,
        digest: str | None = None,
        by: str | None = None,
        note: str | None = None,
        content: str | None = None,
        arguments: dict[str, Any] | None = None,
        scope: Scope | None = None,
        remember: bool = False,
        uses: int | None = None,
        lasting: Lasting = "session",
        expires: datetime | None = None,
        stop_turn: bool = False,
        decision_id: str | None = None,
    ) -> Decision:
        """The decision that `decide` would send, signed where there is a key. Nothing is sent.

        Any SDK can deliver it, as the body of the signal or update `decide`. BadInput when it cannot be a decision.
        """
        address = ApprovalId.parse(approval_id)
        turn = self.get_turn(address.turn)
        meant = ACTION_ALIASES.get(outcome, outcome)
        if self._signer and scope is None and (remember or meant in ALWAYS_ACTIONS):
            scope = await turn.fetch_scope(address, DecisionAction(meant))  # a signature must cover it
        try:
            decision = Decision.model_validate(
                {
                    "approval_id": str(address),
                    "digest": digest or await turn.fetch_digest(address),
                    "outcome": outcome,
                    "id": decision_id or uuid4().hex,
                    "by": by or self.actor_name,
                    "at": datetime.now(UTC),
                    "note": note,
                    "content": content,
                    "arguments": arguments,
                    "scope": scope,
                    "remember": remember,
                    "uses": uses,
                    "lasting": lasting,
                    "expires": expires,
                    "stop_turn": stop_turn,
                }
            )
        except ValidationError as error:
            raise BadInput(f"this is not a decision: {describe_problems(error, 'decision')}") from error
        return self._signer.sign(decision) if self._signer else decision

    async def list_approvals(self) -> list[ApprovalView]:
        """Everything that waits for a person, in all turns, the most urgent first. Most turns need no worker for it.

        Turns that can be read neither from the server nor by asking them are in `inbox_view`.
        """
        return list((await self.fetch_inbox()).approvals)

    async def fetch_inbox(self) -> InboxView:
        """The same, and the turns in which something may wait that cannot be read.

        PayloadUnreadable when nothing else waits and one of these is encrypted with a key that this process lacks.
        """
        query = f"{STATE_ATTRIBUTE.name} = 'awaiting_approval' AND ExecutionStatus = 'Running'"
        items: list[ApprovalView] = []
        unread: dict[str, HoldfastError] = {}
        try:
            async for found in self.client.list_workflows(query):
                memo = await read_memo(found)
                items += memo.approvals
                try:
                    if memo.total > len(memo.approvals):
                        items += await self._fetch_omitted(found.id, {item.approval_id for item in memo.approvals})
                except HoldfastError as error:
                    unread[found.id] = error
        except RPCError as error:
            raise translate_error(error, "inbox") from error
        locked = next((error for error in unread.values() if isinstance(error, PayloadUnreadable)), None)
        if locked and not items:  # one turn that we cannot read hides no other
            raise locked
        return InboxView(
            approvals=tuple(sorted(drop_stale_editors(datetime.now(UTC), items), key=urgency_key)),
            unread={turn: str(error) for turn, error in unread.items()},
        )

    async def _fetch_omitted(self, turn_id: str, known: set[str]) -> list[ApprovalView]:
        """What the memo had no room for."""
        try:
            view = await query_turn(self.client, turn_id, "view", result_type=TurnView, seconds=FETCH_SECONDS)
        except (RPCError, WorkflowQueryFailedError) as error:
            raise translate_error(error, turn_id) from error
        return [item for item in own_of(turn_id, view.approvals) if item.approval_id not in known]


def _find_signer(client: Client) -> Signer | None:
    """That of the client's plugin. By its name, since the plugin imports all that a worker needs."""
    signers = (getattr(plugin, "signer", None) for plugin in client.config().get("plugins", ()))
    return next((signer for signer in signers if signer), None)


def _summarise_input(input: TurnInput) -> str:
    if input.prompt is not None:
        return shorten_text(input.prompt, 120)
    return f"{sum(map(len, input.batches))} calls in {len(input.batches)} batches"
