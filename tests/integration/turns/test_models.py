"""Turns with models of real providers' wire formats, which fail in every way that the real ones do (S3, S11, S12)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from holdfast import (
    Effect,
    LiveOutput,
    ModelChoice,
    Run,
    Schedule,
    Session,
    SessionInput,
    SessionView,
    Turn,
    TurnInput,
    TurnLimits,
)
from holdfast.activities.models.step_io import ConversationCache
from holdfast.activities.models.transcript import ToolNames
from holdfast.client.queries import query_turn
from holdfast.config.schema import ModelServerSettings, ModelsSettings
from holdfast.domain.conversation.messages import ConversationPage, ModelSettings, UserMessage
from holdfast.domain.turn.activity_io import is_model_call
from holdfast.testing import FakeTool, wait_until
from tests.support.engine import Engine
from tests.support.services.providers import Act, Provider, provider

KEY = "sk-canary-42"


async def _echo(arguments: dict[str, Any], run: Run) -> str:
    return f"echo {arguments.get('say')}"


async def _long(arguments: dict[str, Any], run: Run) -> str:
    return f"{arguments.get('say')} " + "r" * 39_000


ECHO_NAME = ToolNames(["files.echo"]).to_model_name("files.echo")
"""What a model calls it."""
ECHO = FakeTool("files.echo", _echo, safe=True, effect=Effect.READ)
LONG = FakeTool("long", _long, safe=True, effect=Effect.READ)


class Served:
    """An engine whose workers ask a server of models."""

    def __init__(self, engine: Engine, server: Provider, speaks: Any) -> None:
        self.engine, self.server = engine, server
        url = f"{server.url}/v1" if speaks == "openai" else server.url
        made = ModelServerSettings(url=url, speaks=speaks, key="${MODEL_CANARY}")
        dead = ModelServerSettings(url="http://127.0.0.1:9/v1")
        engine.settings = replace(engine.settings, models=ModelsSettings(servers={"local": made, "dead": dead}))

    async def turn(self, *acts: Act, **input: Any) -> Turn:
        """A turn whose model acts so."""
        self.server.acts += acts
        model = input.pop("model", ModelChoice(name="local:fake", instructions="Be good."))
        return await self.engine.start(TurnInput(prompt="Do it", model=model, **input))


@asynccontextmanager
async def served(engine: Engine, speaks: str) -> AsyncIterator[Served]:
    async with provider() as server:
        yield Served(engine, server, speaks)


@pytest.fixture(params=["openai", "anthropic"])
async def serving(
    engine: Engine, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Served]:
    monkeypatch.setenv("MODEL_CANARY", KEY)
    assert "MODEL_CANARY" in os.environ
    async with served(engine, request.param) as made:
        yield made


@pytest.mark.parametrize("schedule", list(Schedule))
async def test_S3_S12_a_provider_that_misbehaves_leaves_no_dangling_and_no_doubled_response(
    serving: Served, schedule: Schedule
) -> None:
    """The server refuses a conversation in which a call has no answer, or two: a refusal would end the turn."""
    two = ((ECHO_NAME, {"say": 1}), (ECHO_NAME, {"say": 2}), (ECHO_NAME, {"say": 3}))
    acts = (
        Act(status=429, headers={"retry-after": "1"}),
        Act(status=500),
        Act(text="Let me see", calls=two, cut=9),
        Act(text="Let me see", calls=two, ids=("same", "same", "same")),
        Act(calls=((ECHO_NAME, '{"say": 4'), ("files_ecko", {"say": 5}), (ECHO_NAME, {"say": 6}), (ECHO_NAME, "[1]"))),
        Act(text="That is all."),
    )
    async with serving.engine.worker(ECHO):
        turn = await serving.turn(*acts, schedule=schedule)
        result = await turn.result()
    assert (result.status, result.text) == ("completed", "That is all.")
    assert [response.status for response in result.responses][3:] == ["error", "error", "success", "error"]
    assert [response.text for response in result.responses if response.status == "success"] == [
        "echo 1",
        "echo 2",
        "echo 3",
        "echo 6",
    ]
    assert not serving.server.acts
    assert result.usage.total_tokens == 45
    assert KEY not in await serving.engine.written(turn)


async def test_a_model_that_fails_for_good_is_followed_by_the_next(serving: Served) -> None:
    serving.server.acts += [Act(status=401, error=f"wrong key {KEY}"), Act(text="Here I am.")]
    model = ModelChoice(name="local:first", fallbacks=("nowhere", "local:second"))
    async with serving.engine.worker(ECHO):
        turn = await serving.turn(model=model)
        result = await turn.result()
    assert (result.status, result.text) == ("completed", "Here I am.")
    assert [body["model"] for body in serving.server.asked] == ["first", "second"]
    assert KEY not in await serving.engine.written(turn)


async def test_a_model_that_fails_for_good_ends_the_turn_and_keeps_what_was_before(serving: Served) -> None:
    async with serving.engine.worker(ECHO):
        turn = await serving.turn(Act(calls=((ECHO_NAME, {"say": 1}),)), Act(status=403, error="not for you"))
        result = await turn.result()
    assert result.status == "failed"
    assert "not for you" in (result.reason or "")
    assert [response.text for response in result.responses] == ["echo 1"]


async def test_text_is_seen_while_the_model_writes_and_is_in_no_history(serving: Served) -> None:
    rest = asyncio.Event()
    async with serving.engine.worker(ECHO):
        turn = await serving.turn(Act(text="It was a dark night", wait=rest))
        async for item in turn.watch():
            if isinstance(item, LiveOutput) and "It was a dark" in item.tail:
                assert is_model_call(item.call_id)
                assert "dark" not in await serving.engine.written(turn)
                rest.set()
        result = await turn.result()
    assert result.text == "It was a dark night"


async def test_calls_are_seen_while_the_model_writes_the_next_one(serving: Served) -> None:
    rest = asyncio.Event()
    calls = ((ECHO_NAME, {"say": "first"}), (ECHO_NAME, {"say": "second"}))
    async with serving.engine.worker(ECHO):
        turn = await serving.turn(Act(calls=calls, wait=rest), Act(text="Done."))
        async for item in turn.watch():
            if isinstance(item, LiveOutput) and '→ files.echo {"say": "first"}' in item.tail:
                rest.set()
        result = await turn.result()
    assert rest.is_set()
    assert result.text == "Done."


async def test_S42_a_step_fetches_what_is_new_since_the_last_one(serving: Served) -> None:
    fetched: list[int] = []
    async with serving.engine.worker(ECHO):
        steps = [Act(calls=((ECHO_NAME, {"say": number}),)) for number in range(4)]
        turn = await serving.turn(*steps, Act(text="Done."))
        await turn.result()
        known = ConversationCache(serving.engine.client)
        whole = (await known.fetch(turn.id, None)).conversation
        for have in (0, 1, len(whole.messages)):
            page = await query_turn(serving.engine.client, turn.id, "messages", have, 0, result_type=ConversationPage)
            fetched.append(len(page.messages))
            assert page.messages == whole.messages[have:]
        again = (await known.fetch(turn.id, None)).conversation
    assert again == whole
    assert fetched == [10, 9, 0]


async def test_S44_tokens_have_a_limit_and_what_was_asked_for_is_answered(serving: Served) -> None:
    async with serving.engine.worker(ECHO):
        turn = await serving.turn(
            Act(calls=((ECHO_NAME, {"say": 1}),)),
            Act(calls=((ECHO_NAME, {"say": 2}),), tokens=(900, 200)),
            limits=TurnLimits(tokens=1_000),
        )
        result = await turn.result()
        conversation = await turn.fetch_conversation()
    assert (result.status, result.usage.total_tokens) == ("stopped", 1_115)
    assert result.reason == "The turn reached its limit of 1,000 tokens: it has used 1,115"
    assert [response.status for response in result.responses] == ["success", "cancelled"]
    assert conversation
    assert [message.kind for message in conversation.messages] == ["user", "assistant", "tool", "assistant", "tool"]


async def test_a_conversation_that_nears_the_window_is_told_shorter(serving: Served) -> None:
    """Results of tools first; then, where that is not enough, a summary that the model writes."""
    calls = tuple(("long", {"say": number}) for number in range(4))
    model = ModelChoice(name="local:fake", settings=ModelSettings(window=60_000))
    async with serving.engine.worker(LONG):
        turn = await serving.turn(
            Act(calls=calls, tokens=(100, 50)),
            Act(calls=calls[:1], tokens=(41_000, 50)),
            Act(calls=calls[:1], tokens=(51_000, 50)),
            Act(text="Done.", tokens=(20_000, 10)),
            model=model,
        )
        result = await turn.result()
        events = [event async for event in turn.watch() if not isinstance(event, LiveOutput)]
    assert (result.status, result.text) == ("completed", "Done.")
    [made] = [event for event in events if event.after == "compacted"]
    assert "fewer results of tools" in (made.note or "")
    sizes = [len(str(body["messages"])) for body in serving.server.asked]
    assert sizes[3] < sizes[2] / 2
    assert not serving.server.acts


async def test_a_session_knows_before_its_next_turn_that_the_window_is_nearly_full(serving: Served) -> None:
    model = ModelChoice(name="local:fake", settings=ModelSettings(window=10_000))
    first, second = Act(text="First. " * 2_000, tokens=(4_000, 5_000)), Act(text="Second.")
    serving.server.acts += [first, Act(text="THE SUMMARY"), second]
    async with serving.engine.worker():
        session = serving.engine.holdfast.get_session()
        await session.send("w " * 8_000, start=SessionInput(turn=TurnInput(model=model)))
        await wait_until(lambda: _idle(session, 1))
        await session.send("And now?")
        view = await wait_until(lambda: _idle(session, 2))
    assert view.last.status == "completed", view.last.reason
    assert "THE SUMMARY" in str(serving.server.asked[-1]["messages"])


async def test_a_conversation_that_is_too_long_is_summarised_and_goes_on(serving: Served) -> None:
    too_long = Act(status=400, error="prompt is too long: maximum context length exceeded")
    words = "w " * 60_000
    async with serving.engine.worker(LONG):
        session = serving.engine.holdfast.get_session()
        start = SessionInput(turn=TurnInput(model=ModelChoice(name="local:fake")))
        serving.server.acts += [Act(text="First."), too_long, Act(text="THE SUMMARY"), Act(text="Second.")]
        await session.send(words, start=start)
        await wait_until(lambda: _idle(session, 1))
        await session.send("And now?")
        view = await wait_until(lambda: _idle(session, 2))
        told = [message async for message in session.fetch_messages()]
    assert view.last.status == "completed", view.last.reason
    assert "THE SUMMARY" in str(serving.server.asked[-1]["messages"])
    assert words not in str(serving.server.asked[-1]["messages"])
    assert [message.kind for message in told] == ["user", "assistant", "user", "assistant"]
    assert isinstance(told[0], UserMessage)
    assert "THE SUMMARY" in told[0].text


async def test_S18_who_interrupts_while_the_conversation_is_made_shorter_is_heard(serving: Served) -> None:
    rest = asyncio.Event()
    too_long = Act(status=400, error="prompt is too long: maximum context length exceeded")
    calls = ((ECHO_NAME, {"say": "w" * 5_000}),)
    acts = (Act(calls=calls), Act(calls=calls), too_long, Act(text="SUMMARY", wait=rest), Act(text="As you like."))
    async with serving.engine.worker(ECHO):
        turn = await serving.turn(*acts)
        await wait_until(lambda: _nothing_but(serving, 1))
        await turn.interrupt("Rather this")
        result = await turn.result()
        rest.set()
    assert (result.status, result.text) == ("completed", "As you like.")
    assert "Rather this" in str(serving.server.asked[-1]["messages"])


async def _nothing_but(serving: Served, acts: int) -> bool:
    return len(serving.server.acts) == acts


async def test_S6_arguments_that_nest_too_deeply_are_an_error_and_no_hung_turn(serving: Served) -> None:
    deep = '{"say": ' * 196 + "1" + "}" * 196
    async with serving.engine.worker(ECHO):
        session = serving.engine.holdfast.get_session()
        serving.server.acts += [Act(calls=((ECHO_NAME, deep), (ECHO_NAME, {"say": 1}))), Act(text="Done.")]
        start = SessionInput(turn=TurnInput(model=ModelChoice(name="local:fake")))
        sent = await session.send("Go", start=start)
        result = await session.get_turn(sent.turn).result()
        await wait_until(lambda: _idle(session, 1))
    assert [response.status for response in result.responses] == ["error", "success"]
    assert result.text == "Done."


async def _idle(session: Session, turns: int) -> SessionView | None:
    view = await session.fetch_view()
    return view if view.turns == turns and view.turn is None else None


async def test_S3_S4_the_calls_of_a_sessions_turns_are_kept_apart_and_blank_words_are_told(serving: Served) -> None:
    """Each turn numbers its calls from the first, and the server wants every id once."""
    for number in range(3):
        serving.server.acts += [Act(text=" ", calls=((ECHO_NAME, {"say": number}),)), Act(text=f"Answer {number}.")]
    async with serving.engine.worker(ECHO):
        session = serving.engine.holdfast.get_session()
        start = SessionInput(turn=TurnInput(model=ModelChoice(name="local:fake")))
        for number in range(3):
            await session.send(f"Message {number}", start=start)
            view = await wait_until(lambda number=number: _idle(session, number + 1))  # type: ignore[misc]
            assert view.last.status == "completed", view.last.reason
    assert not serving.server.acts
