"""Conversations made shorter: calls and responses stay together, and what is told fits (S3)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.calls.call import CallRequest
from holdfast.domain.content import BlobPart, Part, Response, TextPart
from holdfast.domain.conversation.compaction import (
    STUB_CHARACTERS,
    SUMMARY_HEADING,
    apply_cut,
    build_model_messages,
    build_page,
    estimate_tokens,
    format_conversation,
    is_nearly_full,
    plan_cut,
)
from holdfast.domain.conversation.messages import (
    AssistantMessage,
    Compaction,
    ConversationMessage,
    ToolMessage,
    UserMessage,
)


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
        shown = build_model_messages(session, own, done)
        check_whole(shown)
        cut = plan_cut(shown, aim)
        before, last = estimate_tokens(shown), shown[-1]
        own, done = apply_cut(len(session), own, done, cut, "What was said" if cut.before else None)
        after = build_model_messages(session, own, done)
        check_whole(after)
        assert estimate_tokens(after) <= before + estimate_tokens([user(SUMMARY_HEADING + "What was said")])
        assert after[-1] == last, "what the user said last is always told"
    check_whole(build_model_messages(session, own, done))


@given(conversations(), st.integers(5_000, 50_000))
def test_a_conversation_alone_becomes_as_short_as_it_should(own: list[ConversationMessage], aim: int) -> None:
    cut = plan_cut(own, aim)
    left, done = apply_cut(0, own, Compaction(), cut, "What was said" if cut.before else None)
    kept = own[cut.results_before :]
    alone = estimate_tokens([message for message in kept if not isinstance(message, ToolMessage)])
    assert estimate_tokens(build_model_messages((), left, done)) <= aim + alone + 1_000


def test_results_go_first_and_what_the_model_said_stays() -> None:
    own = [user("Go"), *step(1, 40_000), *step(2, 40_000), *step(3, 10), user("And?")]
    cut = plan_cut(own, 15_000)
    left, done = apply_cut(0, own, Compaction(), cut, None)
    assert (cut.before, done.summary) == (0, None)
    assert [message.kind for message in left] == [message.kind for message in own]
    first = left[2]
    assert isinstance(first, ToolMessage)
    assert len(first.responses[0].text) <= STUB_CHARACTERS
    assert "characters left out" in first.responses[0].text


def test_a_summary_takes_the_place_of_a_sessions_messages_and_of_a_summary_before_it() -> None:
    session: list[ConversationMessage] = [user("u" * 40_000), AssistantMessage(text="a" * 40_000)]
    own: list[ConversationMessage] = [user("Next")]
    cut = plan_cut(build_model_messages(session, own, Compaction()), 5_000)
    own, done = apply_cut(len(session), own, Compaction(), cut, "first summary")
    assert (done.before, done.summary) == (2, "first summary")
    assert [message.kind for message in build_model_messages(session, own, done)] == ["user", "user"]
    own = [*own, AssistantMessage(text="b" * 40_000), user("Last")]
    cut = plan_cut(build_model_messages(session, own, done), 5_000)
    own, done = apply_cut(len(session), own, done, cut, "second summary")
    assert [getattr(message, "text", "") for message in build_model_messages(session, own, done)] == [
        SUMMARY_HEADING + "second summary",
        "Last",
    ]


def test_the_last_results_are_shortened_when_even_they_are_too_long() -> None:
    own = [user("Go"), *step(1, *[40_000] * 50)]
    cut = plan_cut(own, 50_000)
    left, _ = apply_cut(0, own, Compaction(), cut, None)
    assert cut.limit is not None
    assert estimate_tokens(left) <= 50_000
    check_whole(left)


def answered(number: int, *parts: Part) -> list[ConversationMessage]:
    call, response = f"b{number}c1", Response(call_id=f"b{number}c1", tool="echo", status="success", parts=parts)
    message = AssistantMessage(text="", calls=(CallRequest(tool="echo"),), call_ids=(call,))
    return [message, ToolMessage(responses=(response,))]


def parts_of(message: ConversationMessage) -> tuple[Part, ...]:
    assert isinstance(message, ToolMessage)
    return message.responses[0].parts


def test_S34_old_images_are_told_in_words_and_the_last_ones_stay() -> None:
    """They count, though their description is short: else a conversation of images would never become shorter."""
    images = [BlobPart(media_type="image/png", size=1_000, digest="0" * 64, whole=f"/o/{n}.png") for n in range(20)]
    own = [message for number, image in enumerate(images) for message in answered(number, image)]
    left, _ = apply_cut(0, own, Compaction(), plan_cut(own, 15_000), None)
    shown = [isinstance(parts_of(message)[0], BlobPart) for message in left[1::2]]
    assert 0 < sum(shown) < 10
    assert shown == sorted(shown)
    assert parts_of(left[1]) == (TextPart(text=images[0].text),)
    assert estimate_tokens(left) <= 15_000


def test_S33_a_result_that_is_left_out_still_says_how_its_whole_is_read() -> None:
    whole = f"/o/{'0123456789abcdef' * 4}.txt"
    own = [*answered(1, TextPart(text="r" * 40_000, whole=whole)), *step(2, 10)]
    left, _ = apply_cut(0, own, Compaction(), plan_cut(own, 1_000), None)
    [part] = parts_of(left[1])
    assert part.text.endswith(f"[read_output reads the whole, by the name {'0123456789abcdef' * 2}]")
    assert isinstance(part, TextPart)
    assert part.whole == whole, "a sweep goes by it"
    again, _ = apply_cut(0, left, Compaction(), plan_cut(left, 500), None)
    assert parts_of(again[1])[0].text.count("read_output") == 1


def test_when_it_is_near() -> None:
    assert is_nearly_full(100, 80)
    assert not is_nearly_full(100, 79)
    assert not is_nearly_full(None, 10**9)


def test_a_text_for_a_summary_names_who_said_what_and_is_bounded() -> None:
    text = format_conversation([user("Go"), *step(1, 10), AssistantMessage(text="Done.")], 1_000)
    assert text.splitlines()[0] == "User: Go"
    assert "[calls echo with {}]" in text
    assert "Result of echo: rrrrrrrrrr" in text
    assert len(format_conversation([user("u" * 100_000)], 100)) < 1_000


@given(conversations(), st.integers(0, 20), st.integers(0, 2), st.none() | st.integers(0, 2))
def test_pages_bring_exactly_what_is_missing(
    messages: list[ConversationMessage], have: int, epoch: int, known: int | None
) -> None:
    have = min(have, len(messages))
    mine = list(messages[:have]) if known == epoch else [user("of another epoch")] * have
    for _ in range(100):
        page = build_page(messages, len(mine), epoch, known)
        mine, known = [*mine[: page.start], *page.messages], page.epoch
        if not page.more:
            break
    assert mine == messages
