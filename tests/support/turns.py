"""The turns whose histories are stored: one of every behaviour.

`make histories` runs each on a real server and stores its history; `tests/replay` replays them all. A new behaviour
gets a new entry; an old entry is never changed, since turns like it may still be running somewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from copy import copy
from dataclasses import replace
from typing import Any

from temporalio.api.common.v1 import Payload, Payloads
from temporalio.worker import Worker

from holdfast import (
    CallRequest,
    ContextChange,
    Effect,
    Interrupt,
    Mode,
    ModelChoice,
    Result,
    Run,
    Schedule,
    ScriptedReply,
    Session,
    SessionInput,
    Turn,
    TurnInput,
    TurnLimits,
)
from holdfast.domain.approvals.approval import Confirmation
from holdfast.domain.calls.tool import NeedsAnswer, OutcomeUnknown
from holdfast.domain.content import TextPart
from holdfast.domain.conversation.messages import Usage
from holdfast.domain.turn.approval_view import ApprovalView
from holdfast.domain.turn.turn_view import TurnView
from holdfast.errors import TurnNotFound
from holdfast.testing import FakeTool, build_request, decide_all, script_model, wait_until
from tests.support.engine import Engine
from tests.support.processes import hurried_worker
from tests.support.versions import versioned
from tests.support.waiting import asked, done, executing, speaking, waiting

Play = Callable[[Engine], Awaitable[Turn | Session]]


async def _echo(arguments: dict[str, Any], run: Run) -> str:
    return f"echo {arguments.get('say')}"


async def _fail(arguments: dict[str, Any], run: Run) -> str:
    raise LookupError("nothing there")


async def _linger(arguments: dict[str, Any], run: Run) -> str:
    run.write("half of it")
    await asyncio.Event().wait()
    return "never"


async def _long(arguments: dict[str, Any], run: Run) -> str:
    return "r" * 40_000


_begun: set[str] = set()


async def _unsure(arguments: dict[str, Any], run: Run) -> str:
    """Knows only at its second run what became of it."""
    if run.key not in _begun:
        _begun.add(run.key)
        raise OutcomeUnknown("The line went dead", (TextPart(text="half of it"),))
    return "done"


FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "email": {"type": "string", "format": "email"},
        "seats": {"type": "integer", "default": 2},
    },
    "required": ["email", "seats"],
}


async def _hold(arguments: dict[str, Any], run: Run) -> str:
    """Asks where it runs."""
    answer = await run.ask(Confirmation(kind="question", title="Who?", question="Who?", form=FORM))
    return f"{answer.action} {answer.fields}"


async def _leave(arguments: dict[str, Any], run: Run) -> str:
    """Ends with a question that has one answer."""
    if run.answer is None:
        asked = Confirmation(kind="question", title="Open it", question="Open it", options=("done",), other=False)
        raise NeedsAnswer(asked, {"step": 1})
    return f"{run.answer.action} {run.answer.text}"


ELSEWHERE = "holdfast-elsewhere"


def _elsewhere() -> FakeTool:
    made = FakeTool("elsewhere", _echo)
    made.task_queue = ELSEWHERE
    return made


RULES = '[[rule]]\ndecision = "ask"\ntool = "pair"\napprovals = 2\n'
TOOLS = [
    FakeTool("echo", _echo, safe=True, effect=Effect.READ),
    FakeTool("ask", _echo, asks=True),
    FakeTool("pair", _echo),
    FakeTool("fail", _fail),
    FakeTool("linger", _linger),
    FakeTool("long", _long, safe=True),
    FakeTool("unsure", _unsure, safe=True),
    FakeTool("hold", _hold, questions=True),
    FakeTool("leave", _leave, questions=True),
    _elsewhere(),
]


async def one_call(engine: Engine) -> Turn:
    """One call that nobody is asked about."""
    return await engine.start(TurnInput(batches=((build_request("echo", say=1),),)))


async def ten_calls(engine: Engine) -> Turn:
    """Ten that run side by side."""
    return await engine.start(TurnInput(batches=(tuple(build_request("echo", say=n) for n in range(10)),)))


async def ten_approvals(engine: Engine) -> Turn:
    """Ten that are asked about, and approved one by one."""
    turn = await engine.start(TurnInput(batches=(tuple(build_request("ask", say=n) for n in range(10)),)))
    await decide_all(engine.holdfast, turn)
    return turn


async def mixed_batch(engine: Engine) -> Turn:
    """Success, unknown tool, invalid arguments, failure, approval, refusal, an answer in the tool's place."""
    answers = {"b1c5": "yes", "b1c6": "no"}
    calls = (
        CallRequest(tool="echo", arguments={"say": 1}, id="same"),
        CallRequest(tool="ecko", id="same"),
        build_request("read_file", pth=1),
        build_request("fail"),
        build_request("ask", say="approved"),
        build_request("ask", say="refused"),
        build_request("ask", say="answered"),
    )
    turn = await engine.start(TurnInput(batches=(calls,)))
    view = await wait_until(lambda: waiting(turn, 3))
    for item in view.approvals:
        outcome = answers.get(item.approval_id.split("/")[-2], "respond")
        await engine.holdfast.decide(item.approval_id, outcome, content="42" if outcome == "respond" else None)
    return turn


async def model_turn(engine: Engine) -> Turn:
    """A model, two batches, its answer."""
    model = script_model(
        [build_request("echo", say=1), build_request("ask", say=2)], [build_request("echo", say=3)], "All done."
    )
    turn = await engine.start(TurnInput(prompt="Do it", model=model))
    await decide_all(engine.holdfast, turn)
    return turn


async def model_gives_up(engine: Engine) -> Turn:
    """A model that fails for good."""
    return await engine.start(TurnInput(prompt="Do it", model=script_model([build_request("echo", say=1)])))


async def queue_of_batches(engine: Engine) -> Turn:
    """Submitted, withdrawn, finished."""
    turn = await engine.start(TurnInput(batches=((build_request("ask", say="a"),),), keep_open=True))
    view = await wait_until(lambda: waiting(turn))
    await turn.submit([build_request("echo", say="b")])
    withdrawn = await turn.submit([build_request("echo", say="c")])
    await turn.withdraw(withdrawn)
    await engine.holdfast.approve(view.approvals[0].approval_id)
    await turn.finish()
    return turn


async def cancelled_turn(engine: Engine) -> Turn:
    """Cancelled while one runs and others wait."""
    batches = (
        (build_request("echo", say=1), build_request("linger"), build_request("echo", say=2)),
        (build_request("echo", say=3),),
    )
    turn = await engine.start(TurnInput(batches=batches))
    await wait_until(lambda: executing(turn, "b1c2"))
    await turn.cancel()
    return turn


async def cancelled_call_and_batch(engine: Engine) -> Turn:
    """One call cancelled, then its batch; the next batch runs."""
    batches = ((build_request("ask", say=1), build_request("ask", say=2)), (build_request("echo", say=3),))
    turn = await engine.start(TurnInput(batches=batches))
    await wait_until(lambda: waiting(turn, 2))
    await turn.cancel_call("b1c1")
    await turn.cancel_batch("b1")
    return turn


async def refusal_that_stops(engine: Engine) -> Turn:
    """A refusal that ends the turn, by signal."""
    turn = await engine.start(TurnInput(batches=((build_request("ask", say=1), build_request("ask", say=2)),)))
    view = await wait_until(lambda: waiting(turn, 2))
    item = view.approvals[0]
    body = {"approval_id": item.approval_id, "digest": item.digest, "outcome": "no", "stop_turn": True}
    handle = engine.client.get_workflow_handle(turn.id)
    await handle.signal("decide", {"garbage": True})
    await handle.signal("decide", body)
    return turn


async def large_payloads(engine: Engine) -> Turn:
    """Arguments and results outside the history."""
    calls = tuple(build_request("long", data="a" * 30_000, number=n) for n in range(3))
    return await engine.start(TurnInput(batches=(calls,)))


async def question_answered(engine: Engine) -> Turn:
    """A question, approved in vain, then answered."""
    call = build_request("ask_user", question="Which?", options=["this", "that"], allow_other=False)
    turn = await engine.start(TurnInput(batches=((call, build_request("echo", say=1)),)))
    [item] = (await wait_until(lambda: waiting(turn))).approvals
    body = {"approval_id": item.approval_id, "digest": item.digest, "outcome": "yes"}
    await engine.client.get_workflow_handle(turn.id).signal("decide", body)
    await engine.holdfast.decide(item.approval_id, "respond", content="that")
    return turn


async def file_read_and_edited(engine: Engine) -> Turn:
    """What a turn saw of a file counts for its later calls: two edits, one of a file that changed meanwhile."""
    file = engine.workspace / "a.txt"
    await asyncio.to_thread(file.write_text, "one two")
    edit = build_request("edit", path="a.txt", old_text="two", new_text="2 two")
    turn = await engine.start(
        TurnInput(batches=((build_request("read_file", path="a.txt"),), (edit, edit)), keep_open=True)
    )
    for item in (await wait_until(lambda: waiting(turn, 2))).approvals:
        await engine.holdfast.approve(item.approval_id)
    await wait_until(lambda: done(turn, "b2"))
    await asyncio.to_thread(file.write_text, "changed two")
    await turn.submit([edit])
    await turn.finish()
    return turn


async def file_changed_under_approval(engine: Engine) -> Turn:
    """A diff that is no longer true when it is approved is asked about again."""
    turn = await engine.start(TurnInput(batches=((build_request("write_file", path="b.txt", content="mine"),),)))
    [item] = (await wait_until(lambda: waiting(turn))).approvals
    await asyncio.to_thread((engine.workspace / "b.txt").write_text, "theirs")
    await engine.holdfast.approve(item.approval_id)
    await wait_until(lambda: asked(turn, "b1c1", 2))
    await engine.holdfast.approve(f"{turn.id}/b1c1/2")
    return turn


async def denied_by_mode(engine: Engine) -> Turn:
    """A turn in plan mode, with nobody to ask: what would change something is denied."""
    calls = (
        build_request("write_file", path="c.txt", content="x"),
        build_request("ask", say=1),
        build_request("echo", say=2),
    )
    return await engine.start(TurnInput(batches=(calls,), mode=Mode.PLAN, interactive=False))


async def call_that_runs_elsewhere(engine: Engine) -> Turn:
    """A tool that names the task queue of its workers."""
    turn = await engine.start(TurnInput(batches=((build_request("elsewhere", say=1),),)))
    elsewhere = Worker(await engine.connect(*TOOLS), task_queue=ELSEWHERE)
    async with elsewhere:
        await turn.result()
    return turn


async def standing_answers(engine: Engine) -> Turn:
    """A grant answers siblings and a later batch, a refusal is remembered, the grant is revoked."""
    calls = tuple(build_request("ask", say=say) for say in ("a", "a", "b", "c"))
    turn = await engine.start(TurnInput(batches=(calls,), keep_open=True))
    items = (await wait_until(lambda: waiting(turn, 4))).approvals
    await engine.holdfast.decide(items[0].approval_id, "proceed_always", uses=2)
    await engine.holdfast.deny(items[2].approval_id, remember=True)
    await engine.holdfast.approve(items[3].approval_id)
    await wait_until(lambda: done(turn, "b1"))
    await turn.submit([build_request("ask", say="a"), build_request("ask", say="b"), build_request("ask", say="a")])
    [left] = (await wait_until(lambda: asked(turn, "b2c3", 1))).approvals
    await turn.revoke("g1")
    await engine.holdfast.deny(left.approval_id)
    again = await wait_until(lambda: asked(turn, "b2c1", 1))
    await engine.holdfast.approve(again.approvals[0].approval_id)
    await turn.finish()
    return turn


async def changed_arguments(engine: Engine) -> Turn:
    """Opened in an editor, changed in vain, changed, approved; another one changed and approved in one step."""
    calls = (build_request("write_file", path="d.txt", content="x"), build_request("ask", say=1))
    turn = await engine.start(TurnInput(batches=(calls,)))
    write, ask = (await wait_until(lambda: waiting(turn, 2))).approvals
    await turn.note_editing(write.approval_id, by="ana")
    body = {"approval_id": write.approval_id, "digest": write.digest, "outcome": "modify"}
    await engine.client.get_workflow_handle(turn.id).signal("decide", {**body, "arguments": {"path": "/x"}})
    await engine.holdfast.decide(write.approval_id, "modify", content="y")
    await engine.holdfast.approve(f"{turn.id}/b1c1/2")
    await engine.holdfast.decide(ask.approval_id, "proceed_once", arguments={"say": 2})
    return turn


async def mode_changed(engine: Engine) -> Turn:
    """One proceeds by the new mode; by the next one nothing does."""
    calls = (build_request("write_file", path="e.txt", content="x"), build_request("ask", say=1))
    turn = await engine.start(TurnInput(batches=(calls,)))
    await wait_until(lambda: waiting(turn, 2))
    await turn.set_mode(Mode.AUTO_EDIT)
    await turn.set_mode(Mode.PLAN)
    return turn


async def deadline_passed(engine: Engine) -> Turn:
    """One is approved in time, the other is not."""
    turn = await engine.start(
        TurnInput(batches=((build_request("ask", say=1), build_request("ask", say=2)),), approval_seconds=4)
    )
    items = (await wait_until(lambda: waiting(turn, 2))).approvals
    await engine.holdfast.approve(items[0].approval_id)
    return turn


async def two_approvers(engine: Engine) -> Turn:
    """One approves twice, which counts once; another makes it two."""
    turn = await engine.start(TurnInput(batches=((build_request("pair", say=1),),)))
    [item] = (await wait_until(lambda: waiting(turn))).approvals
    body = {"approval_id": item.approval_id, "digest": item.digest, "outcome": "yes", "by": "ana"}
    for name in ("one", "two"):
        await engine.client.get_workflow_handle(turn.id).signal("decide", {**body, "id": name})
    await engine.holdfast.approve(item.approval_id, by="ben")
    return turn


async def unknown_outcomes(engine: Engine) -> Turn:
    """Of three calls nobody knows whether they ran: one is run again, one taken as done, one as failed."""
    turn = await engine.start(
        TurnInput(batches=((build_request("unsure"), build_request("unsure"), build_request("unsure")),))
    )
    first, second, third = (await wait_until(lambda: waiting(turn, 3))).approvals
    await engine.holdfast.decide(second.approval_id, "respond", digest=second.digest, content="It was done.")
    await engine.holdfast.deny(third.approval_id, digest=third.digest)
    await engine.holdfast.approve(first.approval_id, digest=first.digest)
    return turn


async def command_on_its_host(engine: Engine) -> Turn:
    """A command goes to the task queue of the host it lives on."""
    turn = await engine.start(TurnInput(batches=((build_request("shell", command="echo one"),),)))
    [item] = (await wait_until(lambda: waiting(turn))).approvals
    await engine.holdfast.approve(item.approval_id, digest=item.digest)
    return turn


async def _question(turn: Turn, call: str) -> ApprovalView:
    """What a call asks first, once it does."""
    view: TurnView = await wait_until(lambda: asked(turn, call, 1))
    return next(one for one in view.approvals if f"/{call}/" in one.approval_id)


async def questions_in_the_middle(engine: Engine) -> Turn:
    """What tools ask where they run and at their end: answers that do not fit count for nothing, then one that does."""
    turn = await engine.start(TurnInput(batches=((build_request("hold"), build_request("leave")),)))
    for call, others, content in (
        ("b1c1", ('{"email": "ana"}', "{}"), '{"email": "ana@example.org"}'),
        ("b1c2", ("no", "1"), "Done"),
    ):
        item = await _question(turn, call)
        body = {"approval_id": item.approval_id, "digest": item.digest, "outcome": "respond"}
        for other in others:
            await engine.client.get_workflow_handle(turn.id).signal("decide", {**body, "content": other})
        await engine.holdfast.decide(item.approval_id, "respond", digest=item.digest, content=content)
    return turn


async def _move(arguments: dict[str, Any], run: Run) -> Result:
    """Leaves another context for what comes after it."""
    change = ContextChange(folder="sub", environment={"STAGE": "HOME"}, tools=("echo", "move"))
    return Result(parts=(TextPart(text="moved"),), context=change)


def _with_traits(tool: FakeTool, **traits: Any) -> FakeTool:
    for name, value in traits.items():
        setattr(tool, name, value)
    return tool


TOOLS += [
    FakeTool("move", _move),
    _with_traits(FakeTool("wait", _linger, safe=True, effect=Effect.READ), interrupt=Interrupt.CANCEL),
    _with_traits(FakeTool("brittle", _fail, safe=True, effect=Effect.READ), aborts_siblings="streaming"),
]


async def streamed_by_a_model(engine: Engine) -> Turn:
    """Calls that begin while the model writes, one attempt that is discarded with a call at work, then the answer."""
    model = ModelChoice(
        script=(
            ScriptedReply(calls=(build_request("wait"), build_request("echo", say=2)), breaks=(1,), seconds=0.3),
            ScriptedReply(text="All done."),
        )
    )
    turn = await engine.start(TurnInput(prompt="Do it", model=model, schedule=Schedule.STREAMING, parallel=3))
    await wait_until(lambda: executing(turn, "b2c1"))
    await turn.cancel_call("b2c1")
    return turn


async def streamed_by_a_caller(engine: Engine) -> Turn:
    """Calls added twice, in the wrong place, in a second attempt, and to a batch that was cancelled."""
    turn = await engine.start(TurnInput(keep_open=True, schedule=Schedule.STREAMING, early=True))
    await turn.add_calls("reply", [build_request("echo", say=1), build_request("wait")])
    await turn.add_calls("reply", [build_request("echo", say=1)])
    await wait_until(lambda: executing(turn, "b1c2"))
    await turn.add_calls("reply", [build_request("wait")], attempt=2)
    handle = engine.client.get_workflow_handle(turn.id)
    await handle.signal("add_calls", {"stream": "reply", "attempt": 2, "at": 9, "calls": [{"tool": "echo"}]})
    await handle.signal("add_calls", {"stream": "reply", "attempt": 2, "at": 1, "calls": [{"tool": "echo"}]})
    await wait_until(lambda: executing(turn, "b2c1"))
    await turn.cancel_batch("b2")
    await turn.finish()
    return turn


async def siblings_brought_down(engine: Engine) -> Turn:
    """A failure that cancels what runs and what waits beside it."""
    calls = (build_request("wait"), build_request("brittle"), build_request("echo", say=3), build_request("ask", say=4))
    return await engine.start(TurnInput(batches=(calls,), schedule=Schedule.STREAMING))


async def interrupted_turn(engine: Engine) -> Turn:
    """A user who speaks while the model thinks, and again while calls are at work."""
    model = ModelChoice(
        script=(
            ScriptedReply(calls=(build_request("wait"), build_request("ask", say=2)), seconds=0.5),
            ScriptedReply(text="As you like."),
        )
    )
    turn = await engine.start(TurnInput(prompt="Do it", model=model, schedule=Schedule.STREAMING))
    await turn.interrupt("First this", by="recorder")
    await wait_until(lambda: executing(turn, "b1c1"))
    await turn.interrupt("Then that", by="recorder")
    return turn


async def context_changed(engine: Engine) -> Turn:
    """A call that ran alone changes what the calls after it run within: one of them is not there any more."""
    calls = (build_request("move"), build_request("echo", say=1), build_request("fail"))
    return await engine.start(TurnInput(batches=(calls, (build_request("fail"), build_request("echo", say=2)))))


async def session_of_turns(engine: Engine) -> Session:
    """Three turns: one is steered twice and then interrupted, one has what an earlier one was granted."""
    replies = (
        ScriptedReply(calls=(build_request("wait"), build_request("ask", say=1)), seconds=0.3),
        ScriptedReply(calls=(build_request("wait"),)),
        ScriptedReply(calls=(build_request("wait"),)),
        ScriptedReply(calls=(build_request("ask", say=1),)),
        ScriptedReply(text="All done."),
    )
    session = engine.holdfast.get_session()
    start = SessionInput(turn=TurnInput(model=ModelChoice(script=replies), requester="recorder"))
    first = await session.send("Begin", start=start, message_id="1")
    turn = session.get_turn(first.turn)
    view = await wait_until(lambda: waiting(turn))
    await engine.holdfast.decide(view.approvals[0].approval_id, "proceed_always")
    await wait_until(lambda: executing(turn, "b1c1"))
    await session.send("Later", message_id="2")
    await session.send("Rather this", how="interrupt", message_id="3")
    await wait_until(lambda: executing(turn, "b2c1"))
    await session.send("And this", how="append", message_id="4")
    await turn.cancel_call("b2c1")
    await wait_until(lambda: executing(turn, "b3c1"))
    await session.interrupt()
    await session.close()
    return session


async def session_goes_over(engine: Engine) -> Session:
    """One that leaves the version of the code that it began on for the next, between two turns."""
    replies = tuple(ScriptedReply(text=f"Answer {number}.") for number in (1, 2))
    start = SessionInput(turn=TurnInput(model=ModelChoice(script=replies), requester="recorder"))
    deployment, session = f"d-{engine.queue}", engine.holdfast.get_session()
    async with versioned(engine, deployment, "v1"):
        first = await session.send("Begin", start=start, message_id="1")
        await session.get_turn(first.turn).result()
        async with versioned(engine, deployment, "v2"):
            second = await session.send("Go on", message_id="2")
            await (await session.wait_for_turn(second.turn)).result()
            await session.close()
            await session.result()
    return session


async def delegated_turn(engine: Engine) -> Turn:
    """Two tasks side by side; one of them is stopped."""
    tasks = (build_request("delegate", prompt="one"), build_request("delegate", prompt="two"))
    scripts = {
        "one": (ScriptedReply(calls=(build_request("echo", say=1),)), ScriptedReply(text="One.")),
        "two": (ScriptedReply(calls=(build_request("linger"),)),),
    }
    model = ModelChoice(script=(ScriptedReply(calls=tasks), ScriptedReply(text="Both.")), delegated=scripts)
    turn = await engine.start(TurnInput(prompt="Do it", model=model))
    inner = engine.holdfast.get_turn(f"{turn.id}~b1c2")
    await wait_until(lambda: _begun_by(inner))
    await turn.cancel_call("b1c2")
    return turn


async def _begun_by(turn: Turn) -> bool:
    try:
        return await executing(turn, "b1c1")
    except TurnNotFound:
        return False


async def limited_turn(engine: Engine) -> Turn:
    """A turn that has its time kept, falls back to another model, is told less than all, and ends at its limit."""
    used = Usage(input_tokens=900, output_tokens=50)
    replies = tuple(
        ScriptedReply(calls=(build_request("long"),), usage=used if number == 1 else Usage(), window=1_000)
        for number in range(1, 5)
    )
    model = ModelChoice(name="nowhere", fallbacks=("scripted",), script=replies)
    return await engine.start(TurnInput(prompt="Go", model=model, limits=TurnLimits(steps=3, seconds=3_600)))


async def continued_turn(engine: Engine) -> Turn:
    """So many steps that it continues as new."""
    replies = (ScriptedReply(calls=(build_request("echo", say=number),)) for number in range(20))
    model = ModelChoice(script=(*replies, ScriptedReply(text="All done.")))
    return await engine.start(TurnInput(prompt="Go", model=model))


async def turn_of_several_runs(engine: Engine) -> Turn:
    """The same with all of its runs kept, and an approval in a later one."""
    replies = (ScriptedReply(calls=(build_request("echo", say=number),)) for number in range(20))
    asks = ScriptedReply(calls=(build_request("ask", say=1),))
    turn = await engine.start(
        TurnInput(prompt="Go", model=ModelChoice(script=(*replies, asks, ScriptedReply(text="All done."))))
    )
    await decide_all(engine.holdfast, turn)
    return turn


async def unreadable_signal(engine: Engine) -> Turn:
    """A signal that no worker can read is dropped, and that is noted; what comes after it counts."""
    turn = await engine.start(TurnInput(batches=((build_request("ask", say=1),),)))
    [item] = (await wait_until(lambda: waiting(turn))).approvals
    sealed = Payload(metadata={"encoding": b"binary/encrypted", "encryption-key-id": b"nobody's"}, data=b"x" * 40)
    await engine.raw_signal(turn.id, "decide", Payloads(payloads=[sealed]))
    await engine.holdfast.approve(item.approval_id)
    return turn


async def steered_session(engine: Engine) -> Session:
    """Its mode is changed, a message is appended, and what is tightened and revoked reaches a delegated turn."""
    inner = (ScriptedReply(calls=(build_request("linger"),)), ScriptedReply(text="Inside."))
    replies = (
        ScriptedReply(calls=(build_request("ask", say=1), build_request("linger"))),
        ScriptedReply(calls=(build_request("delegate", prompt="one"),)),
        ScriptedReply(text="All done."),
    )
    session = engine.holdfast.get_session()
    model = ModelChoice(script=replies, delegated={"one": inner})
    start = SessionInput(turn=TurnInput(model=model, requester="recorder", mode=Mode.AUTO_EDIT))
    turn = session.get_turn((await session.send("Begin", start=start, message_id="1")).turn)
    [item] = (await wait_until(lambda: waiting(turn))).approvals
    given = await engine.holdfast.decide(item.approval_id, "proceed_always")
    assert given, "a worker answers"
    assert given.grant, "a standing answer leaves one"
    await wait_until(lambda: executing(turn, "b1c2"))
    await session.send("And this", how="append", message_id="2")
    await session.configure(model=model)
    await turn.cancel_call("b1c2")
    inside = engine.holdfast.get_turn(f"{turn.id}~b2c1")
    await wait_until(lambda: _begun_by(inside))
    await turn.set_mode(Mode.PLAN)
    await turn.revoke(given.grant)
    await wait_until(lambda: _heard(engine, inside, 2))
    await inside.cancel_call("b1c1")
    await session.close()
    return session


async def _heard(engine: Engine, turn: Turn, signals: int) -> bool:
    return (await engine.history(turn)).count("WORKFLOW_EXECUTION_SIGNALED") == signals


def _elsewhere_on(engine: Engine) -> Engine:
    """The same queue and workspace as another host sees them."""
    made = copy(engine)
    made.settings = replace(engine.settings, data=engine.settings.data.with_name("elsewhere"))
    return made


async def moved_call(engine: Engine) -> Turn:
    """A command whose host is gone before it begins is offered twice, and goes to another."""
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request("shell", command="echo x"),),)))
        [item] = (await wait_until(lambda: waiting(turn))).approvals
    async with _elsewhere_on(engine).worker():
        await engine.holdfast.approve(item.approval_id)
        await turn.result()
    return turn


async def stop_of_a_forsaken_call(engine: Engine) -> Turn:
    """A command that had begun on a host that is gone is told to stop: nobody takes it up, its host does not answer."""
    file = engine.workspace.parent / "holdfast.toml"
    file.write_text("")
    async with hurried_worker(engine, file) as first:
        turn = await engine.start(TurnInput(batches=((build_request("shell", command="echo so far; sleep 60"),),)))
        [item] = (await wait_until(lambda: waiting(turn))).approvals
        await engine.holdfast.approve(item.approval_id)
        await wait_until(lambda: speaking(turn, "so far"))
        await first.kill()
    async with _elsewhere_on(engine).worker():
        await wait_until(lambda: _offered(engine, turn), seconds=60)
        await turn.cancel()
        await turn.result()
    return turn


async def _offered(engine: Engine, turn: Turn) -> bool:
    return "ACTIVITY_TASK_TIMED_OUT" in await engine.history(turn)


WITH_WORKERS: dict[str, Play] = {play.__name__: play for play in (moved_call, stop_of_a_forsaken_call)}
"""Those that bring their own workers, and in which a call waits for its host for seconds, not minutes."""

PLAYS: dict[str, Play] = {
    play.__name__: play
    for play in (
        one_call,
        ten_calls,
        ten_approvals,
        mixed_batch,
        model_turn,
        model_gives_up,
        queue_of_batches,
        cancelled_turn,
        cancelled_call_and_batch,
        refusal_that_stops,
        large_payloads,
        question_answered,
        file_read_and_edited,
        file_changed_under_approval,
        denied_by_mode,
        call_that_runs_elsewhere,
        standing_answers,
        changed_arguments,
        mode_changed,
        deadline_passed,
        two_approvers,
        unknown_outcomes,
        command_on_its_host,
        questions_in_the_middle,
        streamed_by_a_model,
        streamed_by_a_caller,
        siblings_brought_down,
        interrupted_turn,
        context_changed,
        session_of_turns,
        session_goes_over,
        delegated_turn,
        limited_turn,
        continued_turn,
        turn_of_several_runs,
        unreadable_signal,
        steered_session,
    )
} | WITH_WORKERS
