"""The policy in real turns: what proceeds, what is asked and why, what is denied, and that a turn cannot loosen it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast import BadInput, Effect, HoldfastPlugin, Mode, Response, Run, TurnInput
from holdfast.testing import FakeTool, build_request, wait_until
from tests.support.engine import Engine
from tests.support.waiting import waiting

RULES = """
[[rule]]
name = "no-push"
decision = "deny"
command = "git push"
message = "Leave pushing to people: open a pull request instead."

[[rule]]
name = "echoes"
decision = "allow"
command = "echo **"

[[rule]]
name = "secrets"
decision = "deny"
path = "secrets/**"

[[rule]]
name = "look"
decision = "ask"
tool = "echo"
reason = "Echoes carry far."
"""


async def _echo(arguments: dict[str, object], run: Run) -> str:
    return "echo"


ECHO = FakeTool("echo", _echo, effect=Effect.READ)


def _with_rules(engine: Engine, rules: str, **more: object) -> None:
    file = engine.workspace.parent / "policy.toml"
    file.write_text(rules)
    engine.settings = replace(engine.settings, policy=(file,), **more)  # type: ignore[arg-type]


async def _answers(engine: Engine, *calls: tuple[str, dict[str, object]], **turn: object) -> list[Response]:
    requests = tuple(build_request(tool, **arguments) for tool, arguments in calls)  # type: ignore[arg-type]
    async with engine.worker(ECHO):
        started = await engine.start(TurnInput(batches=(requests,), **turn))  # type: ignore[arg-type]
        return list((await started.result()).responses)


def _kind(response: Response) -> str | None:
    return response.error.type if response.error else None


async def test_S29_denied_calls_end_with_the_rules_message_and_their_siblings_go_on(both: Engine) -> None:
    _with_rules(both, RULES)
    (both.workspace / "secrets").mkdir()
    calls: list[tuple[str, dict[str, object]]] = [
        ("shell", {"command": "cd . && sudo git push origin main"}),
        ("read_file", {"path": "./secrets/../secrets/key"}),
        ("shell", {"command": "echo fine"}),
        ("list_directory", {}),
    ]
    push, secret, fine, listed = await _answers(both, *calls)
    assert (_kind(push), push.text) == ("denied", "Leave pushing to people: open a pull request instead.")
    assert _kind(secret) == "denied"
    assert (fine.status, fine.text.strip()) == ("success", "fine")
    assert listed.status == "success"


async def test_S30_a_command_that_a_rule_allows_runs_as_it_was_understood(engine: Engine) -> None:
    _with_rules(engine, RULES)
    async with engine.worker():
        call = build_request("shell", command="echo   'a b'  \"c\"|| echo  never")
        turn = await engine.start(TurnInput(batches=((call,),)))
        [response] = (await turn.result()).responses
        whole = await turn.fetch_call("b1c1")
    assert response.text.strip() == "a b c"
    assert whole.bound is not None
    assert whole.bound.arguments["command"] == "echo 'a b' c || echo never"
    assert whole.rule == "user: echoes"


async def test_S29_the_reason_of_a_rule_is_shown_to_the_person(engine: Engine) -> None:
    _with_rules(engine, RULES)
    async with engine.worker(ECHO):
        turn = await engine.start(TurnInput(batches=((build_request("echo"),),)))
        [item] = (await wait_until(lambda: waiting(turn, 1))).approvals
        assert (item.reason, item.rule, item.kind) == ("Echoes carry far.", "user: look", "info")
        await engine.holdfast.approve(item.approval_id, digest=item.digest)
        assert (await turn.result()).responses[0].status == "success"


EDIT: tuple[str, dict[str, object]] = ("write_file", {"path": "a.txt", "content": "x"})
SHELL: tuple[str, dict[str, object]] = ("shell", {"command": "touch b.txt"})
LOOK: tuple[str, dict[str, object]] = ("list_directory", {})


@pytest.mark.parametrize(
    ("mode", "permitted", "edited", "ran"),
    [
        (Mode.DEFAULT, (), "denied", "denied"),
        (Mode.AUTO_EDIT, (), None, "denied"),
        (Mode.PLAN, (), "denied", "denied"),
        (Mode.YOLO, (), "denied", "denied"),
        (Mode.YOLO, (Mode.YOLO,), None, None),
    ],
    ids=["default", "auto_edit", "plan", "yolo, not permitted", "yolo, permitted"],
)
async def test_S27_a_mode_counts_as_far_as_the_worker_permits_and_a_turn_without_people_never_waits(
    engine: Engine, mode: Mode, permitted: tuple[Mode, ...], edited: str | None, ran: str | None
) -> None:
    if permitted:
        engine.settings = replace(engine.settings, modes=permitted)
    edit, shell, look = await _answers(engine, EDIT, SHELL, LOOK, mode=mode, interactive=False)
    assert (_kind(edit), _kind(shell), _kind(look)) == (edited, ran, None)
    assert (engine.workspace / "a.txt").exists() is (edited is None)
    assert (engine.workspace / "b.txt").exists() is (ran is None)


@pytest.mark.parametrize("path", [".git/hooks/pre-commit", "sub/.git/config", ".holdfast/policy.toml", "holdfast.toml"])
async def test_S27_what_decides_what_runs_later_is_asked_about_even_where_edits_proceed(
    engine: Engine, path: str
) -> None:
    edit: tuple[str, dict[str, object]] = ("write_file", {"path": path, "content": "x"})
    [response] = await _answers(engine, edit, mode=Mode.AUTO_EDIT, interactive=False)
    assert _kind(response) == "denied"


async def test_S27_a_destructive_command_is_asked_about_even_in_yolo(engine: Engine) -> None:
    engine.settings = replace(engine.settings, modes=(Mode.YOLO,))
    (engine.workspace / "precious").mkdir()
    [response] = await _answers(engine, ("shell", {"command": "rm -rf precious"}), mode=Mode.YOLO, interactive=False)
    assert _kind(response) == "denied"
    assert (engine.workspace / "precious").exists()


async def test_S29_a_file_in_the_workspace_may_tighten_and_not_loosen(engine: Engine) -> None:
    folder = engine.workspace / ".holdfast"
    folder.mkdir()
    file = folder / "policy.toml"
    file.write_text('[[rule]]\ndecision = "deny"\ntool = "list_directory"\n')
    [response] = await _answers(engine, LOOK)
    assert _kind(response) == "denied"
    file.write_text('[[rule]]\ndecision = "allow"\ntool = "shell"\n')
    with pytest.raises(BadInput, match=r"policy\.toml, line 2: a workspace's file may only tighten"):
        _ = HoldfastPlugin(engine.settings).policy


async def test_S22_a_rule_that_came_after_the_approval_still_counts(engine: Engine) -> None:
    """The executing worker goes by its own policy, whatever another one allowed or a person approved."""
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request("shell", command="touch made"),),)))
        [item] = (await wait_until(lambda: waiting(turn, 1))).approvals
    _with_rules(engine, '[[rule]]\ndecision = "deny"\ncommand = "touch"\n')
    await engine.holdfast.approve(item.approval_id, digest=item.digest)
    async with engine.worker():
        [response] = (await turn.result()).responses
    assert _kind(response) == "denied"
    assert not await asyncio.to_thread(Path(engine.workspace / "made").exists)


async def test_S22_a_turn_that_claims_yolo_for_itself_gets_nothing_by_it(engine: Engine) -> None:
    """Started by hand, with everything a namespace lets one write."""
    async with engine.worker():
        handle = await engine.client.start_workflow(
            "holdfast.turn",
            {
                "batches": [[{"tool": "shell", "arguments": {"command": "touch owned"}}]],
                "mode": "yolo",
                "interactive": False,
            },
            id=f"by-hand-{engine.queue}",
            task_queue=engine.queue,
        )
        result = await handle.result()
    assert result["batches"][0]["responses"][0]["error"]["type"] == "denied"
    assert not await asyncio.to_thread(Path(engine.workspace / "owned").exists)


PARTS = """
[[rule]]
name = "echoes"
decision = "allow"
command = "echo **"

[[rule]]
name = "lists"
decision = "allow"
command = "ls"
in_workspace = true

[[rule]]
name = "cats"
decision = "allow"
command = "cat"
in_workspace = true

[[rule]]
name = "moves"
decision = "allow"
command = "cd **"

[[rule]]
name = "uptime"
decision = "ask"
command = "uptime"
priority = 200

[[rule]]
name = "looks"
decision = "allow"
command = ["uptime **", "date"]
"""


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("echo hi && ls", "success"),
        ("ls | cat; echo done", "success"),
        ("echo hi && touch made", "error"),
        ("cd / && ls", "error"),  # what a part names is judged by where the whole command leads
        ("echo hi > file && ls", "error"),
        ("echo hi && $(ls)", "error"),
        ("ls && date", "success"),
        ("ls && uptime", "error"),
        ("echo hi && VAR=1 ls", "error"),
    ],
)
async def test_S29_each_part_of_a_chain_may_be_covered_by_a_rule_of_its_own(
    engine: Engine, command: str, status: str
) -> None:
    engine.with_rules(PARTS)
    [response] = await _answers(engine, ("shell", {"command": command}), interactive=False)
    assert response.status == status, response.text


async def test_S24_a_rule_and_a_grant_cover_a_chain_together(engine: Engine) -> None:
    engine.with_rules(PARTS)
    async with engine.worker():
        commands = ("touch made", "echo hi && touch made", "touch made && touch other")
        turn = await engine.start(TurnInput(batches=tuple((build_request("shell", command=one),) for one in commands)))
        [first] = (await wait_until(lambda: waiting(turn))).approvals
        await engine.holdfast.decide(first.approval_id, "proceed_always", digest=first.digest, by="ana")
        [second] = (await wait_until(lambda: waiting(turn))).approvals
        assert second.command == "touch made && touch other"
        covered = await turn.fetch_call("b2c1")
        assert (covered.status, covered.grant) == ("success", "g1")
        assert covered.rule == "user: echoes; grant g1: `touch made`, exactly these words"
        await turn.cancel()
