"""Verdicts and decisions on the calls of a turn: approvers, mode, grants, and which calls are validated again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta

from holdfast.domain.approvals.approval import ApprovalId, Approver, Confirmation, Decision
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
from holdfast.domain.modes import Mode
from holdfast.domain.turn.activity_io import CallToValidate, ExecuteInput, JudgementFacts, ValidateInput, ValidateResult
from holdfast.domain.turn.batch_queue import BatchQueue
from holdfast.domain.turn.carryover import RunCarryover, TurnMemory
from holdfast.domain.turn.event_log import EventLog
from holdfast.domain.turn.execution_log import ExecutionLog
from holdfast.domain.turn.turn_io import TurnInput
from holdfast.domain.turn.update_bodies import DecisionResult, EditingNotice
from holdfast.errors import DecisionRefused, RequestRefused


class DecisionLog:
    """The decisions of a turn, with the mode and the grants that apply to further calls."""

    def __init__(
        self,
        input: TurnInput,
        queue: BatchQueue,
        executions: ExecutionLog,
        log: EventLog,
        memory: TurnMemory,
        carried: RunCarryover | None,
    ) -> None:
        self.mode = memory.mode
        """The mode that the turn asks for."""
        self.permitted_mode: Mode | None = None
        """The mode that a worker has judged by; None until one has since the last change."""
        self.grants = Grants(memory.grants, memory.grants_given)
        self.approvers: tuple[Approver, ...] = carried.approvers if carried else ()
        self.is_stale = False
        """A grant, the mode or the context has changed since the pending calls were validated."""
        self._input = input
        self._queue = queue
        self._executions = executions
        self._log = log
        self._counted: set[str] = set()
        self._had_keys = memory.keyed
        """Approvers had keys before this turn."""

    @property
    def has_keys(self) -> bool:
        """Do approvers have keys, as reported by workers in this turn or before it?"""
        return self._had_keys or any(approver.key is not None for approver in self.approvers)

    # Inputs of the activities

    def mark_stale(self) -> None:
        """Note that pending calls must be validated again: a grant, the mode or the context has changed."""
        self.is_stale = True

    def build_validate_input(self, calls: tuple[CallToValidate, ...], *, run_reads: bool = False) -> ValidateInput:
        """Build the input of the activity that validates these calls, and with `run_reads` runs reads at once."""
        facts = self._build_facts(self._executions.seen, self.grants.restore_uses(self._list_used_grants(calls)))
        limit = self._input.approval_seconds
        return ValidateInput(**dict(facts), calls=calls, approval_seconds=limit, run_reads=run_reads)

    def build_execute_input(self, call: Call, *, begun: bool = False, stop: bool = False) -> ExecuteInput:
        """Build the input of the activity that executes this call, or, with `stop`, stops what still runs of it."""
        assert call.bound, "only validated calls are scheduled"
        seen = self._executions.list_seen_digests(call)
        facts = self._build_facts(seen, self.grants.select_for_execution(call.grant))
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
            wrote=self._executions.list_written_digests(call),
            expired=call.expired,
        )

    # Verdicts

    def apply_verdicts(self, batch_id: str, result: ValidateResult) -> bool:
        """Apply the verdicts on calls of a batch. Returns False, and changes no call, when it is no longer active."""
        self._note_worker(result)
        if self._queue.active is None or self._queue.active.id != batch_id:
            return False
        self._settle_batch(apply_verdicts(self._queue.active, result.verdicts, self._log.now()))
        return True

    def reapply_verdicts(self, before: Batch, result: ValidateResult) -> bool:
        """Apply new verdicts on calls as they were in `before`. Calls that changed meanwhile are validated again.

        Returns False, and changes no call, when the batch is no longer active.
        """
        self._note_worker(result)
        batch = self._queue.active
        if batch is None or batch.id != before.id:
            return False
        late = [call for call in batch.calls if call.id in result.verdicts and not call.is_terminal]
        self.is_stale = self.is_stale or any(has_moved_on(call, then) for call in late if (then := before.get(call.id)))
        self._settle_batch(reapply_verdicts(batch, before, result.verdicts, self._log.now()))
        return True

    def apply_change(self, call_id: str, result: ValidateResult) -> None:
        """Apply the verdict on a person's change of a call."""
        self._note_worker(result)
        if self._queue.active and (verdict := result.verdicts.get(call_id)):
            self._queue.update_batch(apply_change(self._queue.active, call_id, verdict, self._log.now()))

    def is_changing(self, call_id: str, decision: Decision) -> bool:
        """Is this change of a call still being validated?"""
        call = self._queue.find_call(call_id)
        return call is not None and call.changing is decision

    def acknowledge_change(self, call_id: str) -> DecisionResult:
        """Return the result of a change. DecisionRefused when it was rejected; the call is then unchanged."""
        call = self._queue.find_call(call_id)
        assert call, "a call that was changed does not vanish"
        if call.problem and not call.is_terminal:
            raise DecisionRefused("bad_change", call.problem)
        return DecisionResult(call=call_id, status=call.status)

    def list_unsettled_calls(self) -> tuple[CallToValidate, ...]:
        """List the calls whose verdict a new grant or mode may change.

        Not calls that run, have ended, are being changed, or were decided by people: the executing worker checks these.
        """
        open_states = (Status.AWAITING_APPROVAL, Status.SCHEDULED)
        calls = self._queue.active.calls if self._queue.active else ()
        return tuple(
            CallToValidate(id=call.id, request=build_bound_request(call), known=_find_asked_digest(call))
            for call in calls
            if call.status in open_states and not call.changing and not _is_settled(call)
        )

    @property
    def has_pending_validation(self) -> bool:
        """Is any call of the active batch still to be validated with the present mode and grants?"""
        unvalidated = self._queue.active.unvalidated_calls if self._queue.active else ()
        return not self._queue.stop and bool(unvalidated or self.list_unsettled_calls())

    # Decisions

    def check_decision(self, decision: Decision) -> Call:
        """Return the call that a decision is for. DecisionRefused when it is not valid. Changes nothing."""
        if decision.key in self._counted:
            raise DecisionRefused("already_counted", f"decision {decision.key!r} was already counted")
        if self._queue.active is None:
            raise DecisionRefused(
                "unknown_approval", f"no pending approval {decision.approval_id!r} (see `holdfast inbox`)"
            )
        if decision.is_grant:
            self.grants.check_room()
        context = DecisionContext(self._queue.turn_id, self.approvers, self._input.requester)
        return check_decision(self._queue.active, decision, context, self._log.now())

    def has_decision(self, decision: Decision) -> bool:
        """Was this decision applied in this run?"""
        return decision.key in self._counted

    def apply_decision(self, decision: Decision) -> tuple[Call, str | None]:
        """Apply a decision. Returns its call afterwards, and the id of the grant that it left, if any.

        DecisionRefused when it is not valid.
        """
        call = self.check_decision(decision)
        self._counted.add(decision.key)
        self._queue.update_batch(apply_decision(self._queue.active_batch, call.id, decision, self._log.now()))
        grant = self._add_grant(call, decision) if decision.is_grant else None
        return self._queue.active_batch.get(call.id) or call, grant

    def note_editing(self, notice: EditingNotice) -> None:
        """Record that a person has opened an approval in an editor, or has closed it."""
        call = self.check_editing(notice)
        until = self._log.now() + timedelta(seconds=notice.seconds)
        editing = Editing(by=notice.by, until=until) if notice.seconds else None
        self._queue.update_batch(set_editing(self._queue.active_batch, call.id, editing))

    def check_editing(self, notice: EditingNotice) -> Call:
        """Return the call of the pending approval that is edited. RequestRefused when there is none."""
        for call in self._queue.active.waiting_calls if self._queue.active else ():
            if str(ApprovalId(self._queue.turn_id, call.id, call.revision)) == notice.approval_id:
                return call
        raise RequestRefused("unknown_approval", f"no pending approval {notice.approval_id!r} (see `holdfast inbox`)")

    def apply_deadlines(self) -> None:
        """Apply the default of every deadline that has passed, and mark calls whose deadline is near."""
        batch = self._queue.active
        if batch and any(call.deadline_at for call in batch.waiting_calls):
            self._queue.update_batch(apply_deadlines(mark_near_deadlines(batch, self._log.now()), self._log.now()))

    # Mode and grants

    def set_mode(self, mode: Mode, by: str | None) -> None:
        """Change the mode. Pending calls must be validated again."""
        if mode is self.mode:
            return
        self.mode, self.permitted_mode = mode, None
        self.mark_stale()
        self._log.emit(kind="turn", after="mode", note=f"mode {mode.value}", by=_shorten_name(by))

    def revoke_grant(self, grant_id: str, by: str | None) -> Grant:
        """Revoke a grant. Calls that it allowed and that have not started must be validated again."""
        self.check_revoke(grant_id)
        grant = self.grants.revoke(grant_id)
        self.mark_stale()
        self._emit_grant("revoked", grant, by)
        return grant

    def revoke_decisions(self, decisions: Collection[str], by: str | None) -> None:
        """Revoke the grants that decisions with these keys left. Refusals stay, so this allows nothing more."""
        for grant in self.grants.all_grants:
            if grant.is_allowance and grant.decision.key in decisions:
                self.revoke_grant(grant.id, by)

    def check_revoke(self, grant_id: str) -> None:
        """RequestRefused for an unknown grant, and for a remembered refusal if approvers have keys."""
        grant = self.grants.get(grant_id)
        if not grant.is_allowance and self.has_keys:
            message = "approvers have keys, and revoking is not signed: a refusal stays until the turn ends"
            raise RequestRefused("refusal_stands", message)

    def adopt_grants(self, grants: Collection[Grant], before: Collection[Grant]) -> None:
        """Add the grants that were given in a delegated turn, which began with those of `before`."""
        if self.grants.adopt_grants(grants, before):
            self.mark_stale()

    def _build_facts(self, seen: Mapping[str, str], grants: tuple[Grant, ...]) -> JudgementFacts:
        return JudgementFacts(
            seen=dict(seen),
            mode=self.mode,
            interactive=self._input.interactive,
            grants=grants,
            tainted=bool(self._executions.tainted),
            requester=self._input.requester,
            context=self._executions.context,
            tools=self._input.tools,
            confirm=self._input.confirm,
        )

    def _list_used_grants(self, calls: tuple[CallToValidate, ...]) -> list[str]:
        """List the grants that allowed these calls: validating a call again does not use its grant twice."""
        chosen = {call.id for call in calls}
        active = self._queue.active.calls if self._queue.active else ()
        return [call.grant for call in active if call.id in chosen and call.grant and call.status is Status.SCHEDULED]

    def _note_worker(self, result: ValidateResult) -> None:
        """Record the approvers and the permitted mode of the worker that validated."""
        if result.approvers is not None:
            self.approvers, self.permitted_mode = result.approvers, result.mode

    def _settle_batch(self, after: Batch) -> None:
        """Replace the active batch after verdicts, and count the uses of grants."""
        before = self._queue.active_batch
        self._queue.update_batch(after)
        pairs = zip(before.calls, after.calls, strict=True)
        fresh = (new for old, new in pairs if (old.status, old.grant) != (new.status, new.grant))
        self.grants.count_uses(call.grant for call in fresh if call.status is Status.SCHEDULED)

    def _add_grant(self, call: Call, decision: Decision) -> str:
        shown = call.confirmation or Confirmation(kind="info", title=call.tool)
        grant = self.grants.add_grant(get_offer(shown, decision), decision, self._log.now())
        self.mark_stale()
        self._emit_grant("granted" if grant.is_allowance else "refused", grant, grant.given_by)
        return grant.id

    def _emit_grant(self, after: str, grant: Grant, by: str | None) -> None:
        note = shorten_line(f"grant {grant.id}: {grant.covers}")
        self._log.emit(kind="turn", after=after, note=note, by=_shorten_name(by))


def build_bound_request(call: Call) -> CallRequest:
    """Return the request of a call with its present arguments: after validation, hooks and changes."""
    return call.request.model_copy(update={"arguments": dict(call.bound.arguments)}) if call.bound else call.request


def _is_settled(call: Call) -> bool:
    """Was the call decided by people, or has it started, so that only people can decide on it?"""
    if call.pause:
        return True
    if call.status is Status.SCHEDULED:
        return bool(call.approvals or call.expired)
    return call.confirmation is not None and call.confirmation.kind == "outcome_unknown"


def _find_asked_digest(call: Call) -> str | None:
    """Return the digest of the call's pending approval, or None."""
    return call.bound.digest if call.bound and call.status is Status.AWAITING_APPROVAL else None


def _shorten_name(by: str | None) -> str | None:
    return shorten_line(by, 100) if by else None
