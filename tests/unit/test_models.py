"""Models over real connections: what they are told, what they reply, and how they fail. The server is strict."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelResponse, ModelResponsePart, ThinkingPart, ToolCallPart
from temporalio.exceptions import ApplicationError

from holdfast.activities.commands import environment, withhold
from holdfast.activities.models.failures import failure_of
from holdfast.activities.models.providers import Models
from holdfast.activities.models.requesting import request
from holdfast.activities.models.tool_names import ToolNames
from holdfast.activities.models.transcripts import call_of, definitions_of, messages_of, reply_of
from holdfast.calls import CallRequest
from holdfast.configuration import ModelServerSettings, ModelsSettings
from holdfast.content import CallError, Response, TextPart
from holdfast.conversations import AssistantMessage, ConversationMessage, ModelReply, ToolMessage, Usage, UserMessage
from holdfast.errors import BadInput
from holdfast.tools import Declaration, Effect
from tests.support.providers import Act, Provider, provider

KEY = "sk-canary-7"
NAMES = ToolNames(["shell", "files.read"])
HELLO: tuple[ConversationMessage, ...] = (UserMessage(text="Hello"),)
SHELL = Declaration(name="shell", description="Runs.", parameters={"type": "object"}, effect=Effect.ONCE)
READ = Declaration(name="files.read", description="Reads.", parameters={"type": "object"}, effect=Effect.READ)


@dataclass
class Asked:
    """What came of a request."""

    reply: ModelReply | None
    failure: ApplicationError | None
    heard: str
    early: list[CallRequest]


class Asking:
    """A model at the server, asked as a worker does."""

    def __init__(self, speaks: Any, server: Provider) -> None:
        self.server = server
        url = f"{server.url}/v1" if speaks == "openai" else server.url
        made = ModelServerSettings(url=url, speaks=speaks, key="${MY_KEY}")
        self.models = Models(ModelsSettings(servers={"local": made}), {"MY_KEY": KEY, "OTHER": "x"})

    async def ask(self, *acts: Act, told: tuple[ConversationMessage, ...] = HELLO) -> Asked:
        """One request, which the server answers so."""
        self.server.acts += acts
        heard: list[str] = []
        early: list[CallRequest] = []

        async def called(part: Any) -> None:
            early.append(call_of(part, NAMES))

        try:
            async with asyncio.timeout(20):
                response = await request(
                    await self.models.get("local:fake"),
                    messages_of(told, NAMES),
                    definitions_of([SHELL, READ], NAMES),
                    instructions="Be good.",
                    settings={"timeout": 10},
                    heard=heard.append,
                    called=called,
                )
        except Exception as error:
            return Asked(None, failure_of(error, "local:fake", self.models.secrets), "".join(heard), early)
        return Asked(reply_of(response, NAMES), None, "".join(heard), early)


@pytest.fixture(params=["openai", "anthropic"])
async def asking(request: pytest.FixtureRequest) -> AsyncIterator[Asking]:
    async with provider() as server:
        made = Asking(request.param, server)
        yield made
        await made.models.close()


async def test_text_is_heard_as_it_comes_and_calls_are_complete(asking: Asking) -> None:
    calls: tuple[tuple[str, dict[str, str]], ...] = (
        ("shell", {"command": "ls"}),
        ("shell", {"command": "pwd"}),
        ("files_read_29e91d73", {}),
    )
    names = [NAMES.theirs(name) for name in ("shell", "shell", "files.read")]
    act = Act(text="Let me look.", calls=tuple(zip(names, (call[1] for call in calls), strict=True)))
    found = await asking.ask(act)
    assert found.reply
    assert (found.heard, found.reply.text) == ("Let me look.", "Let me look.")
    assert [(call.tool, call.arguments) for call in found.reply.calls] == [
        ("shell", {"command": "ls"}), ("shell", {"command": "pwd"}), ("files.read", {}),
    ]  # fmt: skip
    assert tuple(found.early) == found.reply.calls[:2], "of the last nobody knows before the end that it is complete"
    assert (found.reply.usage, found.reply.model) == (Usage(input_tokens=10, output_tokens=5), "fake-1")


async def test_S3_S4_every_call_goes_once_with_its_one_answer_whatever_the_model_called_it(asking: Asking) -> None:
    """Two calls of one id, one with arguments that are no JSON, an error, and words of the user behind them."""
    calls = (CallRequest(tool="files.read", arguments="{oops", id="same"), CallRequest(tool="nope: !", id="same"))
    failed = CallError(type="invalid_tool_params", message="Those are no arguments")
    told = (
        *HELLO,
        AssistantMessage(text="", calls=calls, call_ids=("b1c1", "b1c2")),
        ToolMessage(
            responses=(
                Response(call_id="b1c1", tool="files.read", status="error", error=failed),
                Response(call_id="b1c2", tool="nope: !", status="success", parts=(TextPart(text="fine"),)),
            )
        ),
        UserMessage(text="And now?"),
        AssistantMessage(text="Done."),
        UserMessage(text="Really?"),
    )
    found = await asking.ask(Act(text="Yes."), told=told)
    assert found.reply, found.failure
    sent = str(asking.server.asked)
    for words in ("Those are no arguments", "fine", "And now?", "Done.", "Really?", "Be good.", "Runs."):
        assert words in sent


@pytest.mark.parametrize(
    ("act", "kind", "for_good", "delay"),
    [
        (Act(status=429, headers={"retry-after": "7"}), "rate_limited", False, 7),
        (Act(status=429, headers={"retry-after": "999999"}), "rate_limited", False, 3_600),
        (Act(status=500), "model_unavailable", False, None),
        (Act(status=529), "model_unavailable", False, None),
        (Act(status=401, error=f"{KEY} is no key"), "model_unauthorized", True, None),
        (Act(status=404), "unknown_model", True, None),
        (Act(status=400), "model_rejected", True, None),
    ],
)
async def test_how_it_failed_says_whether_and_when_to_try_again(
    asking: Asking, act: Act, kind: str, for_good: bool, delay: int | None
) -> None:
    failure = (await asking.ask(act)).failure
    assert failure
    assert (failure.type, failure.non_retryable) == (kind, for_good)
    assert failure.next_retry_delay == (timedelta(seconds=delay) if delay else None)
    assert KEY not in str(failure)
    assert len(asking.server.asked) == 1, "a provider's own retries are off"


@pytest.mark.parametrize("how", ["cut", "drop"])
@pytest.mark.parametrize("after", range(1, 9))
async def test_S12_a_stream_that_breaks_off_is_a_failure_wherever_it_does(asking: Asking, how: str, after: int) -> None:
    act = Act(text="Let me", calls=(("shell", {"command": "ls"}), ("shell", {})))
    setattr(act, how, after)
    found = await asking.ask(act)
    assert found.reply is None
    assert found.failure
    assert not found.failure.non_retryable
    assert all(call.arguments == {"command": "ls"} for call in found.early), "half a call is none"


async def test_nobody_there_is_a_failure_that_may_be_tried_again(asking: Asking) -> None:
    gone = Asking("openai", asking.server)
    gone.models = Models(ModelsSettings(servers={"local": ModelServerSettings(url="http://127.0.0.1:9/v1")}), {})
    failure = (await gone.ask()).failure
    await gone.models.close()
    assert failure
    assert (failure.type, failure.non_retryable) == ("model_unavailable", False)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("claude", "say provider:model"),
        ("nonsense:x", "Unknown model"),
        ("openai:gpt-5", "OPENAI_API_KEY"),
        ("keyed:x", "needs its key in MISSING_KEY"),
        ("other:x", "settings allow"),
    ],
)
async def test_a_model_that_cannot_be_had_says_what_to_do(
    name: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    servers = {"keyed": ModelServerSettings(url="http://127.0.0.1:9", key="${MISSING_KEY}")}
    allow = ("claude", "nonsense:*", "openai:*", "keyed:*")
    with pytest.raises((UserError, BadInput), match=words):
        await Models(ModelsSettings(servers=servers, allow=allow), {}).get(name)


def test_tools_are_called_by_names_that_models_can_say() -> None:
    long, odd = "x" * 65, "a.b"
    names = ToolNames(["shell", long, odd, "a_b", "a/b", ""])
    theirs = [names.theirs(name) for name in ("shell", long, odd, "a_b", "a/b")]
    assert theirs[0] == "shell"
    assert theirs[3] == "a_b"
    assert len(set(theirs)) == 5
    assert all(0 < len(name) <= 64 and name.replace("_", "").isalnum() for name in theirs)
    assert [names.ours(name) for name in theirs] == ["shell", long, odd, "a_b", "a/b"]
    assert names.ours("unknown") == "unknown"


def test_what_a_provider_signed_is_given_back_with_the_calls_it_belongs_to() -> None:
    signature = {"thought_signature": "abc"}
    parts: list[ModelResponsePart] = [
        ThinkingPart(content="Hm", signature="s"),
        ToolCallPart("shell", {}, tool_call_id="x", provider_details=signature),
        ToolCallPart("shell", {}, tool_call_id="y"),
    ]
    reply = reply_of(ModelResponse(parts=parts), NAMES)
    said = AssistantMessage(text="", calls=reply.calls, call_ids=("b1c1", "b1c2"), said=reply.said)
    responses = tuple(Response(call_id=one, tool="shell", status="success") for one in said.call_ids)
    _, told, _ = messages_of((UserMessage(text="Go"), said, ToolMessage(responses=responses)), NAMES)
    assert isinstance(told, ModelResponse)
    thinking, first, second = told.parts
    assert isinstance(thinking, ThinkingPart)
    assert (thinking.content, thinking.signature) == ("Hm", "s")
    assert isinstance(first, ToolCallPart)
    assert isinstance(second, ToolCallPart)
    assert (first.tool_call_id, first.provider_details) == ("b1c1", signature)
    assert (second.tool_call_id, second.provider_details) == ("b1c2", None)


def test_a_package_that_is_missing_is_named_as_our_extra() -> None:
    failure = failure_of(ModuleNotFoundError("No module named 'openai'"), "local:fake")
    assert failure.type == "model_not_installed"
    assert failure.non_retryable
    assert "pip install 'holdfast[openai]'" in str(failure)


def test_no_command_inherits_the_keys_of_models(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "MY_MODEL_KEY", "OTHER"):
        monkeypatch.setenv(name, "x")
    withhold(*ModelsSettings(servers={"a": ModelServerSettings(url="http://a", key="${MY_MODEL_KEY}")}).keys)
    assert {"OPENAI_API_KEY", "MY_MODEL_KEY", "OTHER"} & set(environment({})) == {"OTHER"}


@pytest.mark.parametrize(
    ("url", "key"), [("${X}", None), ("http://a", "${A:-b}"), ("http://a", "k"), ("ftp://a", None)]
)
def test_a_server_is_named_as_it_is_and_its_key_by_reference(url: str, key: str | None) -> None:
    with pytest.raises(ValidationError):
        ModelServerSettings(url=url, key=key)
