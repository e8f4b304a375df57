"""Hooks in real turns: they tighten, rewrite, replace and stop, and what they say is in the record (S35)."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import PendingActivityState

from holdfast import HoldfastPlugin, Response, Run, TurnInput
from holdfast.config.schema import HookSettings
from holdfast.testing import FakeTool, build_request, wait_until
from holdfast.workflows import call_activities
from tests.support.engine import Engine
from tests.support.waiting import waiting

STARTED = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
ALLOW = '[[rule]]\ndecision = "allow"\ncommand = ["echo **", "sleep **", "printf **", "false"]\n'


def _hooks(engine: Engine, *hooks: dict[str, Any], rules: str = ALLOW) -> None:
    made = tuple(HookSettings.model_validate({"timeout_seconds": 5, **hook}) for hook in hooks)
    engine.with_rules(rules, hooks=made)


def _answering(text: str) -> list[str]:
    return ["printf", "%s", text]


def _kind(response: Response) -> str | None:
    return response.error.type if response.error else None


async def _echo(arguments: dict[str, Any], run: Run) -> str:
    return "done"


async def _one(engine: Engine, command: str, **turn: Any) -> tuple[Response, Any, str]:
    async with engine.worker():
        started = await engine.start(TurnInput(batches=((build_request("shell", command=command),),), **turn))
        result = await started.result()
        return result.responses[0], await started.fetch_call("b1c1"), result.status


async def test_S35_a_hook_denies_what_the_policy_allows(both: Engine) -> None:
    _hooks(
        both, {"name": "no", "when": "before", "command": _answering('{"decision": "deny", "reason": "Not today."}')}
    )
    response, call, status = await _one(both, "echo hi")
    assert (_kind(response), response.text, status) == ("denied", "Not today.", "completed")
    assert (call.rule, str(call.actor)) == ("hook: no", "hook: no")


async def test_S29_a_deny_of_the_policy_wins_over_a_hook_that_would_only_ask(engine: Engine) -> None:
    ask = {"name": "ask", "when": "before", "command": _answering('{"decision": "ask"}')}
    _hooks(engine, ask, rules='[[rule]]\nname = "never"\ndecision = "deny"\ncommand = "echo **"\n')
    response, call, _ = await _one(engine, "echo hi")
    assert (_kind(response), call.rule) == ("denied", "user: never")


async def test_S35_a_hook_asks_about_what_the_policy_allows_and_no_standing_answer_is_offered(engine: Engine) -> None:
    reason = '{"decision": "ask", "reason": "Look twice."}'
    _hooks(engine, {"name": "look", "when": "before", "command": _answering(reason)})
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request("shell", command="echo hi"),),)))
        [item] = (await wait_until(lambda: waiting(turn))).approvals
        assert (item.reason, item.offers) == ("The hook 'look' asks: Look twice.", ())
        await engine.holdfast.approve(item.approval_id, digest=item.digest)
        assert (await turn.result()).responses[0].status == "success"


REWRITE = """
import json, sys
call = json.load(sys.stdin)
arguments = call["arguments"]
if not arguments["command"].endswith(" safely"):
    arguments["command"] += " safely"
print(json.dumps({"arguments": arguments}))
"""


async def test_S35_policy_sees_rewritten_arguments_and_the_model_is_told(engine: Engine) -> None:
    rules = '[[rule]]\ndecision = "allow"\ncommand = "echo hi safely $"\n'
    _hooks(engine, {"name": "safety", "when": "before", "command": ["python3", "-c", REWRITE]}, rules=rules)
    response, call, _ = await _one(engine, "echo hi")
    assert response.status == "success"
    assert response.parts[0].text.strip() == "hi safely"
    assert response.note == "the hook 'safety' changed the arguments of this call: command is now \"echo hi safely\""
    assert call.bound.rewritten_by == ("safety",)


async def test_S35_a_hook_that_rewrites_again_where_the_call_executes_denies_it(engine: Engine) -> None:
    more = (
        "import json,sys; c=json.load(sys.stdin)['arguments']; c['command']+=' x'; print(json.dumps({'arguments': c}))"
    )
    _hooks(engine, {"name": "more", "when": "before", "command": ["python3", "-c", more]})
    response, _, _ = await _one(engine, "echo hi")
    assert _kind(response) == "denied"
    assert "more" in response.text


@pytest.mark.parametrize(
    "command",
    [["false"], _answering("garbage"), _answering('{"decision": "allow"}'), ["sleep", "60"]],
    ids=["fails", "garbage", "wants to allow", "hangs"],
)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_S35_a_hook_that_breaks_denies_unless_it_is_configured_otherwise(
    engine: Engine, command: list[str], when: str
) -> None:
    hook = {"name": "broken", "when": when, "command": command, "timeout_seconds": 1}
    _hooks(engine, hook)
    response, _, _ = await _one(engine, "echo hi")
    assert _kind(response) == ("denied" if when == "before" else "withheld")
    assert "broken" in response.text
    assert "hi" not in [part.text.strip() for part in response.parts]
    _hooks(engine, {**hook, "on_failure": "ignore"})
    response, _, _ = await _one(engine, "echo hi")
    assert response.status == "success"


async def test_S35_a_hook_replaces_what_the_model_reads_of_success_and_failure(both: Engine) -> None:
    redact = """
import json, sys
print(json.dumps({"result": json.load(sys.stdin)["text"].replace("secret", "[redacted]")}))
"""
    _hooks(both, {"name": "redact", "when": "after", "command": ["python3", "-c", redact]})
    response, _, _ = await _one(both, "echo a secret")
    assert (response.text.strip(), response.display) == ("a [redacted]", None)
    response, _, _ = await _one(both, "printf 'secret'; false")
    assert response.status == "error"
    assert "secret" not in response.model_dump_json()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_S35_a_hook_stops_the_turn(engine: Engine, when: str) -> None:
    _hooks(engine, {"name": "stop", "when": when, "command": _answering('{"stop_turn": true, "reason": "Enough."}')})
    async with engine.worker():
        batch = (build_request("shell", command="echo hi"),)
        turn = await engine.start(TurnInput(batches=(batch, batch)))
        result = await turn.result()
    assert (result.status, result.reason) == ("stopped", "Enough.")
    first, second = result.responses
    assert first.status == ("error" if when == "before" else "success")
    assert second.status == "cancelled"


async def test_S35_at_size_every_call_is_seen_by_the_hook(engine: Engine) -> None:
    seen = engine.workspace.parent / "seen"
    _hooks(engine, {"name": "log", "when": "before", "command": ["sh", "-c", f"echo x >> {seen}"]}, rules="")
    batch = tuple(build_request("list_directory") for _ in range(100))
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=(batch,)))
        statuses = {response.status for response in (await turn.result()).responses}
    assert statuses == {"success"}
    assert len(seen.read_text().splitlines()) >= 200, "before each call, and again where it executes"


HELD = """
import json, os, sys, time
call = json.load(sys.stdin)
with open(sys.argv[1], "a") as file:
    file.write(call["phase"] + "\\n")
while call["phase"] == "validate" and not os.path.exists(sys.argv[2]):
    time.sleep(0.05)
print("{}")
"""


async def test_S35_a_slow_hook_is_asked_once_per_phase(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_activities, "LOCAL_LIMIT", timedelta(seconds=1))
    asked, release = engine.workspace.parent / "asked", engine.workspace.parent / "release"
    hook = ["python3", "-c", HELD, str(asked), str(release)]
    _hooks(engine, {"name": "slow", "when": "before", "command": hook, "timeout_seconds": 30})
    async with engine.worker():
        batches = tuple((build_request("shell", command=f"echo {number}"),) for number in range(2))
        turn = await engine.start(TurnInput(batches=batches))
        await wait_until(lambda: asyncio.to_thread(asked.exists))
        started = time.monotonic()
        while time.monotonic() < started + 1.5:  # longer than a local activity may take
            assert (await turn.fetch_view()).counts == {"validating": 1}
        release.touch()
        await turn.result()
    assert asked.read_text().split() == ["validate", "execute", "validate", "execute"]
    assert (await engine.history(turn)).count("MARKER_RECORDED") == 1, "only the first batch tries the quick way"


async def test_S29_a_worker_logs_which_hook_names_a_tool_that_it_has_not(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    _hooks(engine, {"name": "typo", "when": "before", "command": _answering("{}"), "tools": ["{shel,Bash}"]})

    def log(*tools: FakeTool) -> list[str]:
        caplog.clear()
        HoldfastPlugin(engine.settings, tools=tools).build_activities(engine.client)
        return [record.getMessage() for record in caplog.records if record.name == "holdfast.plugin.plugin"]

    bash, shel = (
        f"The hook 'typo': no built-in tool is called {name!r}: do you mean 'shell'? It is right for a tool of your own"
        for name in ("Bash", "shel")
    )
    assert log() == [bash, shel]
    assert log(FakeTool("Bash", _echo)) == [shel]


async def test_S31_workers_that_are_lost_while_they_validate_cost_no_call_its_verdict(engine: Engine) -> None:
    asked, release = engine.workspace.parent / "asked", engine.workspace.parent / "release"
    hook = ["python3", "-c", HELD, str(asked), str(release)]
    _hooks(engine, {"name": "slow", "when": "before", "command": hook, "timeout_seconds": 30})
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request("shell", command="echo hi"),),)))
        for attempt in range(1, 7):

            async def reached(attempt: int = attempt) -> str | None:
                described = await engine.client.get_workflow_handle(turn.id).describe()
                pending = described.raw_description.pending_activities
                begun = (one for one in pending if one.attempt == attempt and one.state == STARTED)
                return next((one.activity_id for one in begun), None)

            activity_id = await wait_until(reached, 60)
            handle = engine.client.get_async_activity_handle(workflow_id=turn.id, run_id=None, activity_id=activity_id)
            await handle.fail(TimeoutError("its worker was lost"))
        release.touch()
        result = await turn.result()
    assert result.responses[0].text == "hi\n"
