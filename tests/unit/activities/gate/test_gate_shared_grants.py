"""Grants that are good for a number of calls are shared out, in the order of the calls, and never overdrawn (S24)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.activities.builtin.shell import Shell
from holdfast.activities.gate.gate import Gate
from holdfast.activities.gate.prepare_call import CallContext
from holdfast.activities.hooks.hook_chain import Hooks
from holdfast.activities.process.output_store import OutputStore
from holdfast.activities.registry.registry import Registry
from holdfast.domain.approvals.approval import Decision, Scope
from holdfast.domain.approvals.grants import Grant
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.verdicts import Allow, Ask, Verdict
from holdfast.domain.turn.activity_io import CallToValidate
from tests.support.hooks import function


def grant(name: str, uses: int | None, scope: dict[str, object], used: int = 0) -> Grant:
    decision = Decision.model_validate(
        {"approval_id": "turn/b9c9/1", "digest": "d", "outcome": "proceed_always", "scope": scope, "uses": uses}
    )
    given = Scope.model_validate(scope)
    return Grant(id=name, scope=given, covers="", decision=decision, given_at=datetime.now(UTC), used=used)


ECHO_A: dict[str, object] = {"tool": "shell", "server": "", "command": ("echo a $",)}
ANY: dict[str, object] = {"tool": "shell", "server": ""}


def answers(verdicts: dict[str, Verdict]) -> list[str | None]:
    found = [verdicts[name] for name in sorted(verdicts)]
    return [verdict.grant if isinstance(verdict, Allow) else None for verdict in found]


@pytest.mark.parametrize(
    ("grants", "commands", "expected"),
    [
        ([grant("g1", 2, ECHO_A)], ["echo a"] * 3, ["g1", "g1", None]),
        ([grant("g1", 2, ECHO_A, used=1)], ["echo a"] * 3, ["g1", None, None]),
        ([grant("g1", None, ECHO_A)], ["echo a"] * 3, ["g1", "g1", "g1"]),
        ([grant("g1", 1, ECHO_A), grant("g2", 1, ANY)], ["echo a", "echo a", "echo b"], ["g1", None, "g2"]),
        ([grant("g1", 1, ECHO_A), grant("g2", 2, ANY)], ["echo a", "echo a", "echo b"], ["g1", "g2", "g2"]),
        ([grant("g1", 1, ECHO_A), grant("g2", None, ANY)], ["echo a"] * 3, ["g1", "g2", "g2"]),
    ],
)
async def test_S24_uses_are_never_overdrawn(
    grants: list[Grant], commands: list[str], expected: list[str | None], tmp_path: Path
) -> None:
    gate = Gate(Registry([Shell(OutputStore(tmp_path))]), tmp_path)
    calls = [
        CallToValidate(id=f"b1c{place}", request=CallRequest(tool="shell", arguments={"command": command}))
        for place, command in enumerate(commands, start=1)
    ]
    found = await gate.judge_batch(calls, CallContext(grants=tuple(grants), turn_id="turn"))
    assert answers({id: judgement.verdict for id, judgement in found.items()}) == expected


async def test_S35_a_hook_is_asked_once_about_each_call_however_often_grants_are_shared_out(tmp_path: Path) -> None:
    asked: list[str] = []
    hooks = Hooks([function(lambda call: asked.append(call.call_id))])
    gate = Gate(Registry([Shell(OutputStore(tmp_path))]), tmp_path, hooks=hooks)
    calls = [
        CallToValidate(id=f"b1c{place}", request=CallRequest(tool="shell", arguments={"command": "echo a"}))
        for place in (1, 2, 3)
    ]
    grants = (grant("g1", 1, ECHO_A), grant("g2", 1, ANY))
    found = await gate.judge_batch(calls, CallContext(grants=grants, turn_id="turn"))
    assert answers({id: judgement.verdict for id, judgement in found.items()}) == ["g1", "g2", None]
    assert sorted(asked) == ["b1c1", "b1c2", "b1c3"]


async def test_what_is_asked_about_as_it_was_known_needs_no_verdict(tmp_path: Path) -> None:
    gate = Gate(Registry([Shell(OutputStore(tmp_path))]), tmp_path)
    call = CallToValidate(id="b1c1", request=CallRequest(tool="shell", arguments={"command": "echo a"}))
    [(verdict, *_)] = (await gate.judge_batch([call], CallContext())).values()
    assert isinstance(verdict, Ask)
    for known, count in ((verdict.bound.digest, 0), ("another", 1)):
        assert len(await gate.judge_batch([call.model_copy(update={"known": known})], CallContext())) == count
