"""Verdicts and decisions as a turn takes them: who may decide, what stands, what is judged again, what is due."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta

from holdfast.approvals import ApprovalId, Confirmation, Decision
from holdfast.approvers import Approver
from holdfast.batches import (
    Batch,
    changed,
    decided,
    edited,
    expired,
    judged,
    moved_on,
    reconsidered,
    warned,
)
from holdfast.calls import Call, CallRequest, Editing, Status
from holdfast.decisions import Standing, check_decision, offered
from holdfast.errors import DecisionRefused, RequestRefused
from holdfast.events import line
from holdfast.executing import Executing
from holdfast.grants import Grant, Grants
from holdfast.modes import Mode
from holdfast.requests import Acknowledged, EditingNotice
from holdfast.verdicts import Verdict
from holdfast.work import CallToJudge, ValidateInput, ValidateResult


class Deciding(Executing):
    """Batches that are judged, asked about and decided on."""

    def __init__(self, turn_id: str, clock: Callable[[], datetime]) -> None:
        super().__init__(turn_id, clock)
        self.mode = Mode.DEFAULT
        self.grants = Grants()
        self.approvers: tuple[Approver, ...] = ()
        self.permitted: Mode | None = None
        """The mode that counts, as far as a worker has said so."""
        self._counted: set[str] = set()
        self._keyed = False
        """Had they keys before this turn?"""

    @property
    def keyed(self) -> bool:
        """Do approvers have keys, as far as anybody has said so?"""
        return self._keyed or any(approver.key is not None for approver in self.approvers)

    def to_validate(self, calls: tuple[CallToJudge, ...]) -> ValidateInput:
        """What validation is told of these calls and of their turn."""
        return ValidateInput(
            calls=calls,
            seen=dict(self.seen),
            mode=self.mode,
            interactive=self.input.interactive,
            grants=self.grants.free_of(self._holding(calls)),
            tainted=bool(self.tainted),
            requester=self.input.requester,
            approval_seconds=self.input.approval_seconds,
            context=self.context,
            tools=self.input.tools,
            confirm=self.input.confirm,
        )

    def _holding(self, calls: tuple[CallToJudge, ...]) -> list[str]:
        """The grants by which these calls are scheduled already: judged again, they take no second use of them."""
        chosen = {call.id for call in calls}
        work = self.active.calls if self.active else ()
        return [call.grant for call in work if call.id in chosen and call.grant and call.status is Status.SCHEDULED]

    def take_verdicts(self, batch_id: str, result: ValidateResult) -> None:
        """Take what validation said of a batch, if that is still at work."""
        self._learn(result)
        if self.active and self.active.id == batch_id:
            self._settle(judged(self.active, result.verdicts, self._clock()), result.verdicts)

    def take_change(self, call_id: str, result: ValidateResult) -> None:
        """Take what validation said of a change that a person made."""
        self._learn(result)
        if self.active and (verdict := result.verdicts.get(call_id)):
            self.change(changed(self.active, call_id, verdict, self._clock()))

    def is_changing(self, call_id: str, decision: Decision) -> bool:
        """Has validation not yet seen this change?"""
        call = self.find_call(call_id)
        return call is not None and call.changing is decision

    def changed_by(self, call_id: str) -> Acknowledged:
        """What became of a change; DecisionRefused when it was not taken, and then everything is as it was."""
        call = self.find_call(call_id)
        assert call, "a call that was changed does not vanish"
        if call.problem and not call.terminal:
            raise DecisionRefused("bad_change", call.problem)
        return Acknowledged(call=call_id, status=call.status)

    def unsettled(self) -> tuple[CallToJudge, ...]:
        """The calls that a new grant or mode may decide differently.

        None that runs, has ended, is being changed, or has the word of people: that is checked where it executes.
        """
        open_states = (Status.AWAITING_APPROVAL, Status.SCHEDULED)
        calls = self.active.calls if self.active else ()
        return tuple(
            CallToJudge(id=call.id, request=as_bound(call), known=_asked(call))
            for call in calls
            if call.status in open_states and not call.changing and not _settled(call)
        )

    @property
    def to_be_judged(self) -> bool:
        """Is there anything at work that will be judged by what holds now?"""
        return not self.stop and not self.over and bool(self.unsettled() or _unjudged(self.active))

    def reconsider(self, before: Batch, result: ValidateResult) -> None:
        """Take new verdicts on calls as they were in `before`; those on calls that moved on are asked for again."""
        self._learn(result)
        if self.active and self.active.id == before.id:
            late = [call for call in self.active.calls if call.id in result.verdicts and not call.terminal]
            self.stale = self.stale or any(moved_on(call, then) for call in late if (then := before.get(call.id)))
            self._settle(reconsidered(self.active, before, result.verdicts, self._clock()), result.verdicts)

    def _learn(self, result: ValidateResult) -> None:
        """Who may decide, and which mode counts, as the judging worker has it."""
        if result.approvers is not None:
            self.approvers = result.approvers
            self.permitted = result.mode

    def _settle(self, after: Batch, verdicts: Mapping[str, Verdict]) -> None:
        """Take what verdicts made of the batch; count the uses of grants, and end the turn if a hook wants that."""
        before = self.work
        self.change(after)
        pairs = zip(before.calls, after.calls, strict=True)
        fresh = (new for old, new in pairs if (old.status, old.grant) != (new.status, new.grant))
        self.grants.use(call.grant for call in fresh if call.status is Status.SCHEDULED)
        self._obey(verdicts)

    def expire(self) -> None:
        """Take the default wherever a deadline has passed; tell where one is near."""
        if self.active and any(call.deadline_at for call in self.active.waiting):
            self.change(expired(warned(self.active, self._clock()), self._clock()))

    def set_mode(self, mode: Mode, by: str | None) -> None:
        """Change how much proceeds without asking; what waits is judged again."""
        if mode is self.mode:
            return
        self.mode = mode
        self.permitted = None
        self.stale = True
        self._emit(kind="turn", after="mode", note=f"mode {mode.value}", by=_name(by))

    def note_editing(self, notice: EditingNotice) -> None:
        """Tell others that somebody has an approval open in an editor, or is done."""
        call = self.check_editing(notice)
        until = self._clock() + timedelta(seconds=notice.seconds)
        self.change(edited(self.work, call.id, Editing(by=notice.by, until=until) if notice.seconds else None))

    def check_editing(self, notice: EditingNotice) -> Call:
        """The waiting call that somebody edits, or RequestRefused."""
        found = [
            call for call in (self.active.waiting if self.active else ()) if self._address(call) == notice.approval_id
        ]
        if not found:
            raise RequestRefused("unknown_approval", f"nothing waits under {notice.approval_id!r}")
        return found[0]

    def revoke(self, grant_id: str, by: str | None) -> Grant:
        """Take a standing answer back; what was scheduled by it and has not begun is judged again."""
        self.check_revoke(grant_id)
        grant = self.grants.revoke(grant_id)
        self.stale = True
        self._emit(kind="turn", after="revoked", note=line(f"grant {grant_id}: {grant.covers}"), by=_name(by))
        return grant

    def take_back(self, decisions: Collection[str], by: str | None) -> None:
        """Revoke what these decisions allowed. A refusal stays: this only tightens."""
        for grant in self.grants.all:
            if grant.allows and grant.decision.key in decisions:
                self.revoke(grant.id, by)

    def check_revoke(self, grant_id: str) -> None:
        """RequestRefused for what there is not, and for a refusal where only signed words count: this one is not."""
        grant = self.grants.get(grant_id)
        if not grant.allows and self.keyed:
            message = "where approvers have keys a refusal stands until the turn ends: taking it back is not signed"
            raise RequestRefused("refusal_stands", message)

    def check_decision(self, decision: Decision) -> Call:
        """The call a decision is for; DecisionRefused when it does not count. Changes nothing."""
        if decision.key in self._counted:
            raise DecisionRefused("already_counted", f"decision {decision.key!r} was already counted")
        if self.active is None:
            raise DecisionRefused("unknown_approval", f"nothing here waits for {decision.approval_id!r}")
        if decision.stands:
            self.grants.check_room()
        of = Standing(self.turn_id, self.approvers, self.input.requester)
        return check_decision(self.active, decision, of, self._clock())

    def has_counted(self, decision: Decision) -> bool:
        """Was it taken in this run?"""
        return decision.key in self._counted

    def decide(self, decision: Decision) -> Acknowledged:
        """Take a decision; DecisionRefused when it does not count."""
        call = self.check_decision(decision)
        self._counted.add(decision.key)
        self.change(decided(self.work, call.id, decision, self._clock()))
        grant = self._grant(call, decision) if decision.stands else None
        if decision.stop_turn:
            self.stop_turn("stopped", f"{decision.by or 'Somebody'} refused {call.tool!r} and stopped the turn")
        after = self.work.get(call.id)
        return Acknowledged(call=call.id, status=after.status if after else call.status, grant=grant)

    def _grant(self, call: Call, decision: Decision) -> str:
        shown = call.confirmation or Confirmation(kind="info", title=call.tool)
        grant = self.grants.give(offered(shown, decision), decision, self._clock())
        self.stale = True
        after = "granted" if grant.allows else "refused"
        self._emit(kind="turn", after=after, note=line(f"grant {grant.id}: {grant.covers}"), by=_name(grant.by))
        return grant.id

    def _address(self, call: Call) -> str:
        return str(ApprovalId(self.turn_id, call.id, call.revision))


def _unjudged(batch: Batch | None) -> bool:
    return batch is not None and any(call.status is Status.VALIDATING for call in batch.calls)


def _settled(call: Call) -> bool:
    """Has it the word of people, or has it begun and is for people alone?"""
    if call.pause:
        return True
    if call.status is Status.SCHEDULED:
        return bool(call.approvals or call.expired)
    return call.confirmation is not None and call.confirmation.kind == "outcome_unknown"


def _asked(call: Call) -> str | None:
    """The digest under which it is being asked about."""
    return call.bound.digest if call.bound and call.status is Status.AWAITING_APPROVAL else None


def _name(by: str | None) -> str | None:
    return line(by, 100) if by else None


def as_bound(call: Call) -> CallRequest:
    """A call as it would run now: with the arguments that validation, hooks and people left."""
    return call.request.model_copy(update={"arguments": dict(call.bound.arguments)}) if call.bound else call.request
