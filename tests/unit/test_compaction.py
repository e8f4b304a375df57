"""Conversations made shorter: calls and responses stay together, and what is told fits (S3)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.calls import CallRequest
from holdfast.compaction import (
    STUB,
    SUMMARY,
    as_text,
    compacted,
    cut_for,
    near,
    page_of,
    size,
    told,
)
from holdfast.content import Response, TextPart
from holdfast.conversations import AssistantMessage, Compaction, ConversationMessage, ToolMessage, UserMessage


def user(text: str) -> UserMessage:
    return UserMessage(text=text)


def step(number: int, *outputs: int) -> list[ConversationMessage]:
    """An assistant's calls and their responses of these lengths."""
    ids = tuple(f"b{number}c{place}" for place in range(1, len(outputs) + 1))
    calls = tuple(CallRequest(tool="echo") for _ in ids)
    responses = tuple(
        Response(call_id=call, tool="echo", status="success", parts=(TextPart(text="r" * output),))
        for call, output in zip(ids, outputs, strict=True)
    )
    return [AssistantMessage(text="Let me see", calls=calls, call_ids=ids), ToolMessage(responses=responses)]


steps = st.lists(st.lists(st.sampled_from([10, 1_000, 40_000]), min_size=1, max_size=4), max_size=12)
words = st.sampled_from([10, 5_000, 100_000])


@st.composite
def conversations(draw: st.DrawFn) -> list[ConversationMessage]:
    messages: list[ConversationMessage] = []
    for number, outputs in enumerate(draw(steps)):
        if draw(st.booleans()):
            messages.append(user("u" * draw(words)))
        messages += step(number, *outputs)
    return [*messages, user("And now?")]


def check_whole(messages: list[ConversationMessage]) -> None:
    """Every call has its one response, right after it, and no response has no call."""
    open_calls: tuple[str, ...] = ()
    for message in messages:
        if isinstance(message, ToolMessage):
            assert tuple(response.call_id for response in message.responses) == open_calls
            open_calls = ()
        else:
            assert not open_calls
            open_calls = message.call_ids if isinstance(message, AssistantMessage) else ()
    assert not open_calls


@given(conversations(), conversations(), st.integers(100, 50_000), st.integers(1, 3))
def test_S3_however_often_it_is_cut_every_call_keeps_its_response(
    session: list[ConversationMessage], own: list[ConversationMessage], aim: int, times: int
) -> None:
    done = Compaction()
    for _ in range(times):
        shown = told(session, own, done)
        check_whole(shown)
        cut = cut_for(shown, aim)
        before, last = size(shown), shown[-1]
        own, done = compacted(len(session), own, done, cut, "What was said" if cut.before else None)
        after = told(session, own, done)
        check_whole(after)
        assert size(after) <= before + size([user(SUMMARY + "What was said")])
        assert after[-1] == last, "what the user said last is always told"
    check_whole(told(session, own, done))


@given(conversations(), st.integers(5_000, 50_000))
def test_a_conversation_alone_becomes_as_short_as_it_should(own: list[ConversationMessage], aim: int) -> None:
    cut = cut_for(own, aim)
    left, done = compacted(0, own, Compaction(), cut, "What was said" if cut.before else None)
    kept = own[cut.results_before :]
    alone = size([message for message in kept if not isinstance(message, ToolMessage)])
    assert size(told((), left, done)) <= aim + alone + 1_000


def test_results_go_first_and_what_the_model_said_stays() -> None:
    own = [user("Go"), *step(1, 40_000), *step(2, 40_000), *step(3, 10), user("And?")]
    cut = cut_for(own, 15_000)
    left, done = compacted(0, own, Compaction(), cut, None)
    assert (cut.before, done.summary) == (0, None)
    assert [message.kind for message in left] == [message.kind for message in own]
    first = left[2]
    assert isinstance(first, ToolMessage)
    assert len(first.responses[0].text) <= STUB
    assert "characters left out" in first.responses[0].text


def test_a_summary_takes_the_place_of_a_sessions_messages_and_of_a_summary_before_it() -> None:
    session: list[ConversationMessage] = [user("u" * 40_000), AssistantMessage(text="a" * 40_000)]
    own: list[ConversationMessage] = [user("Next")]
    cut = cut_for(told(session, own, Compaction()), 5_000)
    own, done = compacted(len(session), own, Compaction(), cut, "first summary")
    assert (done.before, done.summary) == (2, "first summary")
    assert [message.kind for message in told(session, own, done)] == ["user", "user"]
    own = [*own, AssistantMessage(text="b" * 40_000), user("Last")]
    cut = cut_for(told(session, own, done), 5_000)
    own, done = compacted(len(session), own, done, cut, "second summary")
    assert [getattr(message, "text", "") for message in told(session, own, done)] == [
        SUMMARY + "second summary",
        "Last",
    ]


def test_the_last_results_are_shortened_when_even_they_are_too_long() -> None:
    own = [user("Go"), *step(1, *[40_000] * 50)]
    cut = cut_for(own, 50_000)
    left, _ = compacted(0, own, Compaction(), cut, None)
    assert cut.limit is not None
    assert size(left) <= 50_000
    check_whole(left)


def test_when_it_is_near() -> None:
    assert near(100, 80)
    assert not near(100, 79)
    assert not near(None, 10**9)


def test_a_text_for_a_summary_names_who_said_what_and_is_bounded() -> None:
    text = as_text([user("Go"), *step(1, 10), AssistantMessage(text="Done.")], 1_000)
    assert text.splitlines()[0] == "User: Go"
    assert "[calls echo with {}]" in text
    assert "Result of echo: rrrrrrrrrr" in text
    assert len(as_text([user("u" * 100_000)], 100)) < 1_000


@given(conversations(), st.integers(0, 20), st.integers(0, 2), st.none() | st.integers(0, 2))
def test_pages_bring_exactly_what_is_missing(
    messages: list[ConversationMessage], have: int, epoch: int, known: int | None
) -> None:
    have = min(have, len(messages))
    mine = list(messages[:have]) if known == epoch else [user("of another epoch")] * have
    for _ in range(100):
        page = page_of(messages, len(mine), epoch, known)
        mine, known = [*mine[: page.start], *page.messages], page.epoch
        if not page.more:
            break
    assert mine == messages
