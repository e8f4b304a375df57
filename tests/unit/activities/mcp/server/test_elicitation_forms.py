"""What servers ask: as a person is shown it, whose question it is, and the answer as the server expects it (S39)."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from contextvars import copy_context
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestFormParams, ElicitResult, ErrorData

from holdfast.activities.mcp.server.elicitation import ElicitationHandler, find_addresses_to_open
from holdfast.activities.mcp.server.elicitation_forms import (
    CallCarryover,
    build_carryover,
    build_opening_carryover,
    build_question,
    build_reply,
    read_carryover,
)
from holdfast.domain.approvals.approval import Confirmation, QuestionAnswer
from holdfast.domain.calls.tool import NeedsAnswer, ToolFailure
from holdfast.domain.turn.activity_io import QUESTION_LIMIT
from holdfast.util.secrets import Secret, Secrets

NONE = Secrets()
URL: Any = {"mode": "url", "message": "Pay", "url": "https://example.org/"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


def form(fields: Any, message: str = "Who?") -> Any:
    return {"message": message, "requestedSchema": {"type": "object", "properties": fields}}


def elicit(params: Any) -> Any:
    return {"method": "elicitation/create", "params": params}


# What is shown


@given(
    params=st.dictionaries(st.sampled_from(["mode", "message", "url", "requestedSchema"]), JSON | st.just("url"))
    | st.builds(form, st.dictionaries(st.text(max_size=5), JSON), st.text())
)
def test_S39_whatever_is_asked_can_be_shown_or_is_refused(params: dict[str, Any]) -> None:
    try:
        found = build_question("s", params)
    except ToolFailure:
        return
    assert found.kind == "question"
    assert len(found.model_dump_json()) <= QUESTION_LIMIT + 20_000
    assert not {"\x1b", "\r", "\x00"} & set(found.title + (found.question or ""))


@pytest.mark.parametrize(
    ("field", "fits"),
    [
        ({"type": "string"}, True),
        ({"type": "boolean", "default": True}, True),
        ({"type": "array", "items": {"type": "string", "enum": ["a"]}}, True),
        ({"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}}, True),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, True),
        ({"type": "array", "items": {"type": "object"}}, False),
        ({"type": "array", "items": {"type": "integer"}}, False),
        ({"type": "object", "properties": {}}, False),
    ],
)
def test_S39_a_field_that_an_answer_cannot_hold_is_not_asked_for(field: Any, fits: bool) -> None:
    if fits:
        assert build_question("s", form({"a": field})).form == form({"a": field})["requestedSchema"]
    else:
        with pytest.raises(ToolFailure, match="asked for 'a', which is no single value"):
            build_question("s", form({"a": field}))


def test_S39_a_form_without_fields_asks_whether_to_go_on() -> None:
    for schema in (None, {}, {"type": "object", "properties": {}}, {"properties": {"a": "b"}}):
        asked = build_question("s", {"message": "Go on?", "requestedSchema": schema})
        assert (asked.question, asked.form) == ("Go on?", None)
        assert (asked.options, asked.other) == (("yes",), False), "nothing else is consent"


def test_S39_an_address_is_agreed_to_in_one_word_and_no_other() -> None:
    asked = build_question("s", URL)
    assert (asked.urls, asked.options, asked.other) == (("https://example.org/",), ("done",), False)


@pytest.mark.parametrize(
    ("answer", "params", "reply"),
    [
        (QuestionAnswer(action="decline", text="no"), form({}), {"action": "decline"}),
        (QuestionAnswer(action="cancel"), URL, {"action": "cancel"}),
        (QuestionAnswer(action="accept", text="done"), URL, {"action": "accept"}),
        (QuestionAnswer(action="accept", text="yes"), form({}), {"action": "accept", "content": {}}),
        (
            QuestionAnswer(action="accept", fields={"a": 1, "b": ["x"], "c": None, "d": {"e": 1}, "f": [1]}),
            form({}),
            {"action": "accept", "content": {"a": 1, "b": ["x"], "c": None, "d": '{"e": 1}', "f": "[1]"}},
        ),
    ],
)
def test_S39_an_answer_as_the_server_expects_it(answer: QuestionAnswer, params: Any, reply: Any) -> None:
    assert build_reply(answer, params) == reply
    ElicitResult.model_validate(reply)


# Calls that end with questions


def test_S39_several_questions_are_asked_in_turn_and_go_back_together() -> None:
    result = {"inputRequests": {"x": elicit(form({"a": {}}, "One?")), "y": elicit(URL)}, "requestState": "so far"}
    going_on = build_carryover("s", result, NONE)
    with pytest.raises(NeedsAnswer, match=r"One\?") as first:
        going_on.ask_next("s")
    state = json.loads(json.dumps(first.value.state))  # as the history keeps it
    going_on = _carried(state, QuestionAnswer(action="accept", fields={"a": 1}))
    with pytest.raises(NeedsAnswer, match="Pay") as second:
        going_on.ask_next("s")
    going_on = _carried(second.value.state, QuestionAnswer(action="decline"))
    going_on.ask_next("s")  # nothing more
    assert going_on.sent_replies == {"x": {"action": "accept", "content": {"a": 1}}, "y": {"action": "decline"}}
    assert going_on.state == "so far"
    assert read_carryover(None, None) is None


def _carried(state: Any, answer: QuestionAnswer) -> CallCarryover:
    found = read_carryover(state, answer)
    assert found is not None
    return found


def test_S39_what_is_to_be_done_first_is_not_told_and_a_refusal_ends_it() -> None:
    going_on = build_opening_carryover("s", {"0": URL}, NONE)
    with pytest.raises(NeedsAnswer) as asked:
        going_on.ask_next("s")
    done = _carried(asked.value.state, QuestionAnswer(action="accept", text="done"))
    done.ask_next("s")
    assert (done.sent_replies, done.state) == (None, None)
    with pytest.raises(ToolFailure, match="The tool was not called") as refused:
        _carried(asked.value.state, QuestionAnswer(action="decline")).ask_next("s")
    assert refused.value.type == "declined"


@pytest.mark.parametrize(
    ("result", "kind", "words"),
    [
        ({"inputRequests": {"a": {"method": "roots/list"}}}, "input_required", "asks for roots/list, which"),
        ({"inputRequests": {str(n): elicit(URL) for n in range(21)}}, "bad_question", "21 questions at once"),
        (
            {"inputRequests": {"a": elicit(URL), "b": elicit(form({"c": {"type": "object"}}))}},
            "bad_question",
            "asked for 'c'",
        ),
        ({"requestState": "with s3cret-s3cret in it"}, "bad_question", "a secret"),
    ],
)
def test_S39_what_cannot_be_had_is_refused_before_anything_is_asked(result: Any, kind: str, words: str) -> None:
    with pytest.raises(ToolFailure, match=words) as refused:
        build_carryover("s", result, Secrets([Secret("TOKEN", "s3cret-s3cret")]))
    assert refused.value.type == kind


def test_S45_a_secret_is_in_no_question_and_in_nothing_that_is_kept() -> None:
    fields = {"the s3cret-s3cret": {"type": "string", "enum": ["s3cret-s3cret"]}}
    result = {"inputRequests": {"a": elicit(form(fields, "Is it s3cret-s3cret?"))}}
    with pytest.raises(NeedsAnswer) as asked:
        build_carryover("s", result, Secrets([Secret("TOKEN", "s3cret-s3cret")])).ask_next("s")
    kept = asked.value.question.model_dump_json() + json.dumps(asked.value.state)
    assert "s3cret-s3cret" not in kept
    assert "Is it [TOKEN]?" in kept


# Whose question it is


class Person:
    """Answers when told to, and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._answers: asyncio.Queue[str] = asyncio.Queue()

    async def ask(self, question: Confirmation) -> QuestionAnswer:
        self.asked.append(question.question or "")
        return QuestionAnswer(action="accept", fields={"a": await self._answers.get()})

    def say(self, text: str) -> None:
        self._answers.put_nowait(text)


async def settled() -> None:
    """Let everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


def asking(server: ElicitationHandler, message: str) -> asyncio.Task[Any]:
    """What a server is answered."""
    params = ElicitRequestFormParams(message=message, requested_schema={"properties": {"a": {"type": "string"}}})
    return asyncio.create_task(server.elicit(None, params))  # type: ignore[arg-type]


def content(task: asyncio.Task[Any]) -> Any:
    reply = task.result()
    assert isinstance(reply, ElicitResult)
    return reply.content if reply.action == "accept" else reply.action


async def test_S39_calls_that_began_together_ask_in_their_order() -> None:
    server, first, second, outside = ElicitationHandler("s", NONE), Person(), Person(), copy_context()
    with server.track_call(first.ask), server.track_call(second.ask):
        tasks = [outside.run(asking, server, message) for message in ("One?", "Two?", "Three?")]
        await settled()
        assert (first.asked, second.asked) == (["One?"], ["Two?"])
        second.say("2")
        first.say("1")
        await settled()
        assert first.asked == ["One?", "Three?"]  # one after the other
        first.say("3")
        await settled()
    assert [content(task) for task in tasks] == [{"a": "1"}, {"a": "2"}, {"a": "3"}]


async def test_S39_the_newest_call_is_taken_for_the_one_that_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.activities.mcp.server.elicitation.TOGETHER_SECONDS", 0.0)
    server, old, new, outside = ElicitationHandler("s", NONE), Person(), Person(), copy_context()
    with server.track_call(old.ask):
        with server.track_call(new.ask):
            task = outside.run(asking, server, "Who?")
            await settled()
            assert (old.asked, new.asked) == ([], ["Who?"])
        await settled()
        assert old.asked == ["Who?"]  # the other one has ended, so it was this one's
        old.say("me")
        await settled()
    assert content(task) == {"a": "me"}


async def test_S39_over_http_it_is_known_which_call_asks() -> None:
    server, mine, other = ElicitationHandler("s", NONE), Person(), Person()
    with ExitStack() as calls:
        calls.enter_context(server.track_call(other.ask))
        calls.enter_context(server.track_call(mine.ask))
        with_mine = copy_context()
        task = with_mine.run(asking, server, "Who?")
        await settled()
        assert (mine.asked, other.asked) == (["Who?"], [])
        mine.say("me")
        await settled()
    late = with_mine.run(asking, server, "And now?")
    await settled()
    assert (content(task), content(late)) == ({"a": "me"}, "cancel")


async def test_S39_a_question_outside_of_every_call_and_one_that_cannot_be_asked() -> None:
    server = ElicitationHandler("s", NONE)
    nobody = asking(server, "Who?")
    params = ElicitRequestFormParams(message="?", requested_schema={"properties": {"a": {"type": "object"}}})
    refused = await server.elicit(None, params)  # type: ignore[arg-type]
    await settled()
    assert content(nobody) == "cancel"
    assert isinstance(refused, ErrorData)
    assert "which is no single value" in refused.message


@pytest.mark.parametrize(
    "data", [None, "x", [], {}, {"elicitations": "x"}, {"elicitations": [1]}, {"elicitations": []}]
)
def test_S39_an_error_that_wants_nothing_in_particular_is_an_error(data: Any) -> None:
    assert find_addresses_to_open(MCPError(-32042, "not yet", data)) is None


def test_S39_an_error_that_names_addresses_wants_them_opened() -> None:
    found = find_addresses_to_open(MCPError(-32042, "not yet", {"elicitations": [{**URL, "elicitationId": "1"}]}))
    assert found is not None
    assert [one["url"] for one in found.requests.values()] == ["https://example.org/"]
    assert find_addresses_to_open(MCPError(-32000, "no", {"elicitations": [URL]})) is None
