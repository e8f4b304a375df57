"""The client of an application: start turns and sessions, decide on approvals, list what is pending.

    client = await Client.connect("localhost:7233", plugins=[HoldfastPlugin()])
    holdfast = Holdfast(client)
    turn = await holdfast.start(TurnInput(batches=[[CallRequest(tool="shell", arguments={"command": "ls"})]]))
    async for item in turn.watch():
        ...

Watching long-polls the history and queries the turn, so nothing that a viewer does is in the history (S40).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

from pydantic import JsonValue, ValidationError
from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.service import RPCError

from holdfast.client.error_mapping import translate_error
from holdfast.client.queries import query_turn
from holdfast.client.session import Session
from holdfast.client.turn import UPDATE_SECONDS, Turn
from holdfast.client.turn_reader import read_memo, select_own_approvals
from holdfast.client.watch import TurnFeeds
from holdfast.client.workflow_connection import get_login_name
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
from holdfast.domain.turn.approval_view import ApprovalView, InboxView, drop_stale_editors, urgency_key
from holdfast.domain.turn.ids import ID_MARK
from holdfast.domain.turn.turn_io import TASK_QUEUE, TurnInput, check_input, check_outside, check_size
from holdfast.domain.turn.turn_view import TurnView
from holdfast.domain.turn.update_bodies import DecisionResult
from holdfast.errors import BadInput, HoldfastError, PayloadUnreadable
from holdfast.names import STATE_ATTRIBUTE, TURN_WORKFLOW, TurnQuery
from holdfast.util.text import shorten_text

if TYPE_CHECKING:
    from holdfast.client.signing_keys import Signer

__all__ = ["Holdfast", "Session", "Turn"]

FETCH_SECONDS = 2.0
"""How long the inbox waits for a turn whose memo does not hold all of its pending approvals."""


class Holdfast:
    """Starts turns and sessions, sends decisions and lists pending approvals, over a connected Temporal client.

    The client needs `HoldfastPlugin`. `task_queue` is the queue of the workers that run what is started here. `signer`
    signs the decisions; None takes the key of the plugin's data folder, which `holdfast up` creates, or signs nothing
    when there is none.

    Every method that talks to the server raises ServerUnavailable when no server answers, NoWorker when a worker is
    needed and none answers, and TurnNotFound when the id is unknown. All errors are subclasses of HoldfastError.
    """

    def __init__(self, client: Client, *, task_queue: str = TASK_QUEUE, signer: Signer | None = None) -> None:
        self.client = client
        self.task_queue = task_queue
        self._signer = signer or _find_signer(client)
        self._feeds = TurnFeeds(client)

    @property
    def actor_name(self) -> str:
        """The name in which decisions are sent unless `by` says otherwise: the signer's, else the login name."""
        return self._signer.name if self._signer else get_login_name()

    def get_turn(self, turn_id: str) -> Turn:
        """Return a handle to the turn with this id. Does not contact the server, so the turn need not exist."""
        return Turn(self.client, turn_id, self._feeds)

    def get_session(self, session_id: str | None = None) -> Session:
        """Return a handle to the session with this id, or to a new one. Does not contact the server.

        Raises BadInput for an id that no session can have.
        """
        session_id = f"session-{uuid4().hex[:12]}" if session_id is None else session_id
        if not session_id.strip() or len(session_id) > 400 or ID_MARK in session_id:
            raise BadInput(f"a session's id has between 1 and 400 characters, and no {ID_MARK}")
        return Session(self.client, session_id, self._feeds, self.task_queue, self.actor_name)

    async def start(self, input: TurnInput, *, turn_id: str | None = None) -> Turn:
        """Start a turn and return it; the calls are validated and run by the workers of the task queue.

        `turn_id` is the workflow id; None makes a new one. An id starts one turn: a second call with the same id raises
        RequestRefused with the code `id_in_use`, also after the first turn has ended. Raises RequestRefused for an
        input that no turn can run, and BadInput for an invalid id.
        """
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
        arguments: Mapping[str, JsonValue] | None = None,
        seconds: float = UPDATE_SECONDS,
    ) -> DecisionResult | None:
        """Let one call run once, as it was shown, or with new `content` or `arguments`.

        Takes, returns and raises what `decide` does.
        """
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
        """Refuse one call; the model reads the `note` as the reason. `stop_turn` ends the turn as well (S19).

        Takes, returns and raises what `decide` does.
        """
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
        arguments: Mapping[str, JsonValue] | None = None,
        scope: Scope | None = None,
        remember: bool = False,
        uses: int | None = None,
        lasting: Lasting = "session",
        expires: datetime | None = None,
        stop_turn: bool = False,
        decision_id: str | None = None,
        seconds: float = UPDATE_SECONDS,
    ) -> DecisionResult | None:
        """Decide on one approval, which is addressed by its id alone.

        `outcome`: a `DecisionAction`, or one of its names and aliases (`yes`, `no`, `yes_always`).
        `digest`: the digest of what was shown; None looks it up, which approves whatever is pending at that moment.
        `by`: the name of the person; None is the signer's name, or the login name of this process.
        `content`, `arguments`: the new text or arguments of the call (S25), or the answer to a question.
        `scope`, `uses`, `lasting`, `expires`: what a grant covers, for how many calls and how long; None is the first
        scope that the approval offers, without a limit. `remember`: a refusal leaves a grant too, which denies.
        `stop_turn`: a refusal ends the turn.
        `decision_id`: decisions with the same id count once; None makes a new id.
        `seconds`: how long to wait for a worker.

        Returns the status of the call after the decision. The decision is sent as an update. When the updates of the
        run are exhausted, or no worker answers within `seconds`, it is sent as a signal and None is returned: it is
        applied when a worker is back.

        Raises DecisionRefused when the turn refuses the decision (`code` says why), BadInput when it is not a valid
        decision, TurnNotFound, and ServerUnavailable.
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
        arguments: Mapping[str, JsonValue] | None = None,
        scope: Scope | None = None,
        remember: bool = False,
        uses: int | None = None,
        lasting: Lasting = "session",
        expires: datetime | None = None,
        stop_turn: bool = False,
        decision_id: str | None = None,
    ) -> Decision:
        """Build the decision that `decide` would send, signed if there is a key. Sends nothing.

        Any Temporal SDK can deliver it as the body of the signal or update `decide`. Raises BadInput when it is not a
        valid decision, and what looking up the digest or the scope raises.
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
                    "arguments": None if arguments is None else dict(arguments),
                    "scope": scope,
                    "remember": remember,
                    "uses": uses,
                    "lasting": lasting,
                    "expires": expires,
                    "stop_turn": stop_turn,
                }
            )
        except ValidationError as error:
            raise BadInput(f"invalid decision: {describe_problems(error, 'decision')}") from error
        return self._signer.sign(decision) if self._signer else decision

    async def list_approvals(self) -> list[ApprovalView]:
        """Return every pending approval of all turns, the most urgent first.

        Turns whose approvals cannot be read are left out; `fetch_inbox` names them.
        """
        return list((await self.fetch_inbox()).approvals)

    async def fetch_inbox(self) -> InboxView:
        """Return every pending approval of all turns, and the turns whose approvals could not be read, with the reason.

        Up to 20 approvals of a turn are read from its memo, without a worker. Raises PayloadUnreadable when there is
        nothing to show and a turn is encrypted with a key that this process lacks.
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
        if locked and not items:  # an unreadable turn must not hide the approvals of others
            raise locked
        return InboxView(
            approvals=tuple(sorted(drop_stale_editors(datetime.now(UTC), items), key=urgency_key)),
            unread={turn: str(error) for turn, error in unread.items()},
        )

    async def _fetch_omitted(self, turn_id: str, known: set[str]) -> list[ApprovalView]:
        """Ask the turn for the pending approvals that its memo had no room for."""
        try:
            view = await query_turn(self.client, turn_id, TurnQuery.VIEW, result_type=TurnView, seconds=FETCH_SECONDS)
        except (RPCError, WorkflowQueryFailedError) as error:
            raise translate_error(error, turn_id) from error
        return [item for item in select_own_approvals(turn_id, view.approvals) if item.approval_id not in known]


def _find_signer(client: Client) -> Signer | None:
    """The signer of the client's plugin. By attribute name: importing the plugin would import what a worker needs."""
    signers = (getattr(plugin, "signer", None) for plugin in client.config().get("plugins", ()))
    return next((signer for signer in signers if signer), None)


def _summarise_input(input: TurnInput) -> str:
    if input.prompt is not None:
        return shorten_text(input.prompt, 120)
    return f"{sum(map(len, input.batches))} calls in {len(input.batches)} batches"
