"""Verdicts and decisions as a turn takes them: who may decide, what stands, what is judged again, what is due."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta

from holdfast.domain.approvals.actors import Approver
from holdfast.domain.approvals.approval import ApprovalId, Confirmation, Decision
from holdfast.domain.approvals.grants import Grant, Grants
from holdfast.domain.calls.batch import (
    Batch,
    apply_change,
    apply_deadlines,
    apply_decision,
    apply_verdicts,
    has_moved_on,
    mark_near_deadlines,
    reapply_verdicts,
    set_editing,
)
from holdfast.domain.calls.call import Call, CallRequest, Editing, Status
from holdfast.domain.calls.decision_checks import DecisionContext, check_decision, get_offer
from holdfast.domain.calls.events import shorten_line
from holdfast.domain.calls.verdicts import Verdict
from holdfast.domain.modes import Mode
from holdfast.domain.turn.activity_io import CallToValidate, ExecuteInput, TurnFacts, ValidateInput, ValidateResult
from holdfast.domain.turn.execution import ExecutionState
from holdfast.domain.turn.update_bodies import DecisionResult, EditingNotice
from holdfast.errors import DecisionRefused, RequestRefused


class DecisionState(ExecutionState):
    """Batches that are judged, asked about and decided on."""

    def __init__(self, turn_id: str, clock: Callable[[], datetime]) -> None:
        super().__init__(turn_id, clock)
        self.mode = Mode.DEFAULT
        self.grants = Grants()
        self.approvers: tuple[Approver, ...] = ()
        self.permitted_mode: Mode | None = None
        """The mode that counts, as far as a worker has said so."""
        self._counted: set[str] = set()
        self._has_keys = False
        """Had they keys before this turn?"""

    @property
    def has_keys(self) -> bool:
        """Do approvers have keys, as far as anybody has said so?"""
        return self._has_keys or any(approver.key is not None for approver in self.approvers)

    def build_validate_input(self, calls: tuple[CallToValidate, ...]) -> ValidateInput:
        """The input of the activity that validates these calls."""
        facts = self._build_facts(self.seen, self.grants.restore_uses(self._list_used_grants(calls)))
        return ValidateInput(**dict(facts), calls=calls, approval_seconds=self.input.approval_seconds)

    def build_execute_input(self, call: Call, *, begun: bool = False, stop: bool = False) -> ExecuteInput:
        """The input of the activity that executes this call, or, with `stop`, that stops what is left of it."""
        assert call.bound, "only validated calls are scheduled"
        facts = self._build_facts(self.list_seen_digests(call), self.grants.select_for_execution(call.grant))
        return ExecuteInput(
            **dict(facts),
            call_id=call.id,
            bound=call.bound,
            run=call.run,
            pause=call.pause,
            begun=begun,
            stop=stop,
            approvals=call.approvals,
            shown=call.shown,
            wrote=self.list_written_digests(call),
            expired=call.expired,
        )

    def _build_facts(self, seen: Mapping[str, str], grants: tuple[Grant, ...]) -> TurnFacts:
        return TurnFacts(
            seen=dict(seen),
            mode=self.mode,
            interactive=self.input.interactive,
            grants=grants,
            tainted=bool(self.tainted),
            requester=self.input.requester,
            context=self.context,
            tools=self.input.tools,
            confirm=self.input.confirm,
        )

    def _list_used_grants(self, calls: tuple[CallToValidate, ...]) -> list[str]:
        """The grants by which these calls are scheduled already: judged again, they take no second use of them."""
        chosen = {call.id for call in calls}
        work = self.active.calls if self.active else ()
        return [call.grant for call in work if call.id in chosen and call.grant and call.status is Status.SCHEDULED]

    def apply_verdicts(self, batch_id: str, result: ValidateResult) -> None:
        """Take what validation said of a batch, if that is still at work."""
        self._note_worker_settings(result)
        if self.active and self.active.id == batch_id:
            self._settle_batch(apply_verdicts(self.active, result.verdicts, self._clock()), result.verdicts)

    def apply_change(self, call_id: str, result: ValidateResult) -> None:
        """Take what validation said of a change that a person made."""
        self._note_worker_settings(result)
        if self.active and (verdict := result.verdicts.get(call_id)):
            self.update_batch(apply_change(self.active, call_id, verdict, self._clock()))

    def is_changing(self, call_id: str, decision: Decision) -> bool:
        """Has validation not yet seen this change?"""
        call = self.find_call(call_id)
        return call is not None and call.changing is decision

    def acknowledge_change(self, call_id: str) -> DecisionResult:
        """What became of a change; DecisionRefused when it was not taken, and then everything is as it was."""
        call = self.find_call(call_id)
        assert call, "a call that was changed does not vanish"
        if call.problem and not call.is_terminal:
            raise DecisionRefused("bad_change", call.problem)
        return DecisionResult(call=call_id, status=call.status)

    def list_unsettled_calls(self) -> tuple[CallToValidate, ...]:
        """The calls that a new grant or mode may decide differently.

        None that runs, has ended, is being changed, or has the word of people: that is checked where it executes.
        """
        open_states = (Status.AWAITING_APPROVAL, Status.SCHEDULED)
        calls = self.active.calls if self.active else ()
        return tuple(
            CallToValidate(id=call.id, request=build_bound_request(call), known=_find_asked_digest(call))
            for call in calls
            if call.status in open_states and not call.changing and not _is_settled(call)
        )

    @property
    def has_pending_validation(self) -> bool:
        """Is there anything at work that will be judged by what holds now?"""
        return not self.stop and not self.is_over and bool(self.list_unsettled_calls() or _has_unvalidated(self.active))

    def reapply_verdicts(self, before: Batch, result: ValidateResult) -> None:
        """Take new verdicts on calls as they were in `before`; those on calls that moved on are asked for again."""
        self._note_worker_settings(result)
        if self.active and self.active.id == before.id:
            late = [call for call in self.active.calls if call.id in result.verdicts and not call.is_terminal]
            self.is_stale = self.is_stale or any(
                has_moved_on(call, then) for call in late if (then := before.get(call.id))
            )
            self._settle_batch(reapply_verdicts(self.active, before, result.verdicts, self._clock()), result.verdicts)

    def _note_worker_settings(self, result: ValidateResult) -> None:
        """Who may decide, and which mode counts, as the judging worker has it."""
        if result.approvers is not None:
            self.approvers = result.approvers
            self.permitted_mode = result.mode

    def _settle_batch(self, after: Batch, verdicts: Mapping[str, Verdict]) -> None:
        """Take what verdicts made of the batch; count the uses of grants, and end the turn if a hook wants that."""
        before = self.active_batch
        self.update_batch(after)
        pairs = zip(before.calls, after.calls, strict=True)
        fresh = (new for old, new in pairs if (old.status, old.grant) != (new.status, new.grant))
        self.grants.count_uses(call.grant for call in fresh if call.status is Status.SCHEDULED)
        self._apply_hook_stops(verdicts)

    def apply_deadlines(self) -> None:
        """Take the default wherever a deadline has passed; tell where one is near."""
        if self.active and any(call.deadline_at for call in self.active.waiting_calls):
            self.update_batch(apply_deadlines(mark_near_deadlines(self.active, self._clock()), self._clock()))

    def set_mode(self, mode: Mode, by: str | None) -> None:
        """Change how much proceeds without asking; what waits is judged again."""
        if mode is self.mode:
            return
        self.mode = mode
        self.permitted_mode = None
        self.is_stale = True
        self._emit_event(kind="turn", after="mode", note=f"mode {mode.value}", by=_shorten_name(by))

    def note_editing(self, notice: EditingNotice) -> None:
        """Tell others that somebody has an approval open in an editor, or is done."""
        call = self.check_editing(notice)
        until = self._clock() + timedelta(seconds=notice.seconds)
        self.update_batch(
            set_editing(self.active_batch, call.id, Editing(by=notice.by, until=until) if notice.seconds else None)
        )

    def check_editing(self, notice: EditingNotice) -> Call:
        """The waiting call that somebody edits, or RequestRefused."""
        found = [
            call
            for call in (self.active.waiting_calls if self.active else ())
            if self._format_approval_id(call) == notice.approval_id
        ]
        if not found:
            raise RequestRefused("unknown_approval", f"nothing waits under {notice.approval_id!r}")
        return found[0]

    def revoke_grant(self, grant_id: str, by: str | None) -> Grant:
        """Take a standing answer back; what was scheduled by it and has not begun is judged again."""
        self.check_revoke(grant_id)
        grant = self.grants.revoke(grant_id)
        self.is_stale = True
        self._emit_event(
            kind="turn", after="revoked", note=shorten_line(f"grant {grant_id}: {grant.covers}"), by=_shorten_name(by)
        )
        return grant

    def revoke_decisions(self, decisions: Collection[str], by: str | None) -> None:
        """Revoke what these decisions allowed. A refusal stays: this only tightens."""
        for grant in self.grants.all_grants:
            if grant.is_allowance and grant.decision.key in decisions:
                self.revoke_grant(grant.id, by)

    def check_revoke(self, grant_id: str) -> None:
        """RequestRefused for what there is not, and for a refusal where only signed words count: this one is not."""
        grant = self.grants.get(grant_id)
        if not grant.is_allowance and self.has_keys:
            message = "where approvers have keys a refusal stands until the turn ends: taking it back is not signed"
            raise RequestRefused("refusal_stands", message)

    def check_decision(self, decision: Decision) -> Call:
        """The call a decision is for; DecisionRefused when it does not count. Changes nothing."""
        if decision.key in self._counted:
            raise DecisionRefused("already_counted", f"decision {decision.key!r} was already counted")
        if self.active is None:
            raise DecisionRefused("unknown_approval", f"nothing here waits for {decision.approval_id!r}")
        if decision.is_grant:
            self.grants.check_room()
        of = DecisionContext(self.turn_id, self.approvers, self.input.requester)
        return check_decision(self.active, decision, of, self._clock())

    def has_decision(self, decision: Decision) -> bool:
        """Was it taken in this run?"""
        return decision.key in self._counted

    def apply_decision(self, decision: Decision) -> DecisionResult:
        """Take a decision; DecisionRefused when it does not count."""
        call = self.check_decision(decision)
        self._counted.add(decision.key)
        self.update_batch(apply_decision(self.active_batch, call.id, decision, self._clock()))
        grant = self._record_grant(call, decision) if decision.is_grant else None
        if decision.stop_turn:
            self.stop_turn("stopped", f"{decision.by or 'Somebody'} refused {call.tool!r} and stopped the turn")
        after = self.active_batch.get(call.id)
        return DecisionResult(call=call.id, status=after.status if after else call.status, grant=grant)

    def _record_grant(self, call: Call, decision: Decision) -> str:
        shown = call.confirmation or Confirmation(kind="info", title=call.tool)
        grant = self.grants.add_grant(get_offer(shown, decision), decision, self._clock())
        self.is_stale = True
        after = "granted" if grant.is_allowance else "refused"
        self._emit_event(
            kind="turn",
            after=after,
            note=shorten_line(f"grant {grant.id}: {grant.covers}"),
            by=_shorten_name(grant.given_by),
        )
        return grant.id

    def _format_approval_id(self, call: Call) -> str:
        return str(ApprovalId(self.turn_id, call.id, call.revision))


def _has_unvalidated(batch: Batch | None) -> bool:
    return batch is not None and any(call.status is Status.VALIDATING for call in batch.calls)


def _is_settled(call: Call) -> bool:
    """Has it the word of people, or has it begun and is for people alone?"""
    if call.pause:
        return True
    if call.status is Status.SCHEDULED:
        return bool(call.approvals or call.expired)
    return call.confirmation is not None and call.confirmation.kind == "outcome_unknown"


def _find_asked_digest(call: Call) -> str | None:
    """The digest under which it is being asked about."""
    return call.bound.digest if call.bound and call.status is Status.AWAITING_APPROVAL else None


def _shorten_name(by: str | None) -> str | None:
    return shorten_line(by, 100) if by else None


def build_bound_request(call: Call) -> CallRequest:
    """A call as it would run now: with the arguments that validation, hooks and people left."""
    return call.request.model_copy(update={"arguments": dict(call.bound.arguments)}) if call.bound else call.request
