"""Fuzzing the bodies of decisions: signed ones are damaged in every way that JSON allows, and sent to a waiting turn.

A body is refused in bounded words and time, or it is one that a key of an approver signed, in its very meaning. Nothing
else may happen: any other exception would fail the workflow task for ever (S22, S23).
"""

from __future__ import annotations

import json
import random
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from holdfast.domain.approvals.approval import ANYONE, Approver, Confirmation, Decision, DecisionAction, Offer, Scope
from holdfast.domain.approvals.signing import digest_decision, format_public_key, sign_decision
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.tool import Effect, ToolRef
from holdfast.domain.calls.verdicts import Ask, BoundCall, Verdict
from holdfast.domain.turn.activity_io import ValidateResult
from holdfast.domain.turn.turn_io import TurnInput
from holdfast.domain.turn.turn_state import TurnState
from holdfast.errors import DecisionRefused, RequestRefused
from holdfast.workflows.handlers import REFUSAL_LIMIT, read_bodies
from tests.fuzz.found import Found

NOW = datetime(2031, 1, 30, 12, tzinfo=UTC)
OWNER, ADA, STRANGER = (Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32) for seed in range(1, 4))
SLOW_SECONDS = 1.0
"""Processor time that one body may take: a workflow task must not be held up by it."""
SCOPE = Scope(tool="shell", command=("ls $",))
# fmt: off
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**63, 10**400, 1.5, float("nan"), float("inf"), "", " ", "x", "yes", "no", "null",
    "\x00", "\ud800", "\u202e", "x" * 3_000, "😀" * 500, [], [[]], {}, {"a": {}}, "2031-01-30T12:00:00Z",
    "9999-12-31T23:59:59+00:00", "proceed_always", "proceed_always_tool", "modify", "respond", "cancel", "turn/b1c1/1",
    "turn/b1c1/01", "turn/b1c2/1", "d" * 64, ["ls $"], {"tool": "*"}, {"command": ["**"]}, "ed25519:AAAA", "A" * 88,
)
# fmt: on
NAMES = (*Decision.model_fields, "outcomes", "__class__", "signature ", "", "a" * 2_000)


def make_turn() -> TurnState:
    """A turn with three calls that wait: a command, an edit and a question. The owner's key and that of ada count."""
    tool = ToolRef(name="shell", effect=Effect.ONCE, definition="def")
    offer = Offer(outcome=DecisionAction.PROCEED_ALWAYS, scope=SCOPE, covers="ls")
    shown = (
        Confirmation(kind="exec", title="Run ls", command="ls", offers=(offer,), edits="command"),
        Confirmation(kind="edit", title="Edit", edits="text"),
        Confirmation(kind="question", title="Which?", question="Which?", options=("a", "b"), other=False),
    )
    approvers = (
        Approver(name=ANYONE, key=format_public_key(OWNER.public_key()), vouches=True),
        Approver(name="ada", key=format_public_key(ADA.public_key())),
    )
    state = TurnState("turn", lambda: NOW, TurnInput(batches=((CallRequest(tool="shell"),) * 3,)))
    batch = state.activate_batch()
    verdicts: dict[str, Verdict] = {}
    for number, (call, confirmation) in enumerate(zip(batch.calls, shown, strict=True)):
        bound = BoundCall(
            tool=tool, title="t", arguments={}, digest=f"{number}" * 64, timeout_seconds=1, heartbeat_seconds=1
        )
        verdicts[call.id] = Ask(rule="asks", bound=bound, confirmation=confirmation)
    state.apply_verdicts(batch.id, ValidateResult(verdicts=verdicts, approvers=approvers))
    return state


class DecisionFuzzer:
    """Bodies from one seed, and what a waiting turn makes of them."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._state = make_turn()
        self._signed: set[str] = set()

    def try_one(self, found: Found) -> None:
        """Send one body, and note what should not have happened."""
        body = self._body()
        began = time.process_time()
        try:
            [decision] = read_bodies("decide", Decision, (body,))
            found.telling += 1
            self._state.decisions.check_decision(decision)
            if digest_decision(decision) not in self._signed:
                found.problems.append(f"counted, and nobody signed it: {body!r}")
        except (RequestRefused, DecisionRefused) as refusal:
            if len(str(refusal)) > 10 * REFUSAL_LIMIT:
                found.problems.append(f"refused in {len(str(refusal))} characters: {_short(body)}")
        except Exception as error:  # any of them would fail the workflow task for ever
            found.problems.append(f"{type(error).__name__}: {error} for {_short(body)}")
        if time.process_time() - began > SLOW_SECONDS:
            found.problems.append(f"took {time.process_time() - began:.1f} s: {_short(body)}")
        found.tried += 1

    def _body(self) -> Any:
        body = self._sign_one()
        if self._random.random() < 0.05:
            return body
        for _ in range(self._random.choice((1, 1, 1, 2, 4))):
            body = self._damage(body)
        return body

    def _sign_one(self) -> dict[str, Any]:
        """A decision that counts, or would if its key did."""
        call = self._random.randrange(3)
        fields: dict[str, Any] = {"approval_id": f"turn/b1c{call + 1}/1", "digest": f"{call}" * 64, "by": "ada"}
        choices: list[dict[str, Any]] = [{"outcome": "cancel"}, {"outcome": "cancel", "stop_turn": True}]
        choices += [{"outcome": "proceed_once"}] * 3 if call < 2 else [{"outcome": "respond", "content": "a"}] * 3
        if call == 0:
            choices.append({"outcome": "proceed_always", "scope": SCOPE.model_dump(mode="json"), "uses": 3})
        if call == 1:
            choices.append({"outcome": "modify", "content": "other text"})
        fields |= self._random.choice(choices)
        fields["expires"] = (NOW + timedelta(days=self._random.choice((-1, 1)))).isoformat()
        key = self._random.choice((OWNER, OWNER, ADA, STRANGER))
        decision = sign_decision(Decision.model_validate(fields), key)
        if key is not STRANGER:
            self._signed.add(digest_decision(decision))
        made: dict[str, Any] = decision.model_dump(mode="json", exclude_defaults=True)
        return made

    def _damage(self, body: Any) -> Any:
        if not isinstance(body, dict) or self._random.random() < 0.05:
            return self._random.choice((body, [body], [body, body], json.dumps(body, default=str), self._value()))
        name = self._random.choice((*body, *NAMES))
        how = self._random.randrange(7)
        if how == 0:
            body.pop(name, None)
        elif how == 1:
            body[name] = self._value()
        elif how == 2:
            body[name] = self._twist(body.get(name))
        elif how == 3:
            other = self._sign_one()
            body[name] = other.get(name)
        elif how == 4:
            body |= {f"{name}{number}": number for number in range(self._random.choice((1, 50, 2_000)))}
        elif how == 5:
            body[name] = self._nested(self._random.choice((3, 50, 150)))
        else:
            body[name.upper() if self._random.random() < 0.5 else f" {name}"] = body.get(name)
        return body

    def _value(self) -> Any:
        return self._random.choice(VALUES)

    def _twist(self, value: Any) -> Any:
        """Almost the same."""
        if not isinstance(value, str) or not value:
            return [value]
        place = self._random.randrange(len(value))
        letter = self._random.choice(("", "A", "=", "/", " ", "\n", "\u0430", value[place].swapcase()))
        return value[:place] + letter + value[place + 1 :]

    def _nested(self, depth: int) -> Any:
        value: Any = self._value()
        for _ in range(depth):
            value = [value] if self._random.random() < 0.5 else {"a": value}
        return value


def fuzz_decisions(seed: int, seconds: float) -> Found:
    """Try bodies for so long."""
    fuzzer, found = DecisionFuzzer(seed), Found()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and len(found.problems) < 20:
        fuzzer.try_one(found)
    return found


def _short(body: Any) -> str:
    text = repr(body)
    return text if len(text) < 2_000 else f"{text[:1_000]} … {text[-500:]}"
