"""Models over real connections: what they are told, what they reply, and how they fail. The server is strict."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pydantic_ai
import pytest
from pydantic import ValidationError
from pydantic_ai.exceptions import ModelRateLimitError, UserError
from pydantic_ai.messages import ModelResponse, ModelResponsePart, ThinkingPart, ToolCallPart, ToolReturnPart
from pydantic_ai.messages import TextPart as Said
from temporalio.exceptions import ApplicationError

from holdfast.activities.models.failures import build_model_failure
from holdfast.activities.models.model_request import request_response
from holdfast.activities.models.providers import Models
from holdfast.activities.models.transcript import (
    CUT_OFF_TEXT,
    ToolNames,
    build_call,
    build_messages,
    build_model_reply,
    build_tool_definitions,
)
from holdfast.activities.process.command import build_environment, withhold_variables
from holdfast.config.provider_keys import MODEL_KEYS
from holdfast.config.schema import ModelServerSettings, ModelsSettings
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.tool import Declaration, Effect
from holdfast.domain.content import CallError, Response, TextPart
from holdfast.domain.conversation.messages import (
    AssistantMessage,
    ConversationMessage,
    ModelReply,
    ToolMessage,
    Usage,
    UserMessage,
)
from holdfast.errors import BadInput
from holdfast.payloads.converter import HoldfastPayloadConverter
from holdfast.util.secrets import Secrets
from tests.support.services.providers import Act, Provider, provider

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
        self.server, self.speaks = server, speaks
        url = f"{server.url}/v1" if speaks == "openai" else server.url
        made = ModelServerSettings(url=url, speaks=speaks, key="${MY_KEY}")
        self.models = Models(ModelsSettings(servers={"local": made}), {"MY_KEY": KEY, "OTHER": "x"})

    async def ask(self, *acts: Act, told: tuple[ConversationMessage, ...] = HELLO) -> Asked:
        """One request, which the server answers so."""
        self.server.acts += acts
        heard: list[str] = []
        early: list[CallRequest] = []

        async def called(part: Any) -> None:
            early.append(build_call(part, NAMES))

        try:
            async with asyncio.timeout(20):
                response = await request_response(
                    await self.models.get("local:fake"),
                    build_messages(told, NAMES),
                    build_tool_definitions([SHELL, READ], NAMES),
                    instructions="Be good.",
                    settings={"timeout": 10},
                    on_text=heard.append,
                    on_call=called,
                )
        except Exception as error:
            return Asked(None, build_model_failure(error, "local:fake", self.models.secrets), "".join(heard), early)
        return Asked(build_model_reply(response, NAMES), None, "".join(heard), early)


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
    names = [NAMES.to_model_name(name) for name in ("shell", "shell", "files.read")]
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
        ("claude", "use provider:model"),
        ("nonsense:x", "Unknown model"),
        ("openai:gpt-5", "OPENAI_API_KEY"),
        ("keyed:x", "needs its key in MISSING_KEY"),
        ("other:x", "settings of this worker allow"),
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
    theirs = [names.to_model_name(name) for name in ("shell", long, odd, "a_b", "a/b")]
    assert theirs[0] == "shell"
    assert theirs[3] == "a_b"
    assert len(set(theirs)) == 5
    assert all(0 < len(name) <= 64 and name.replace("_", "").isalnum() for name in theirs)
    assert [names.from_model_name(name) for name in theirs] == ["shell", long, odd, "a_b", "a/b"]
    assert names.from_model_name("unknown") == "unknown"


def test_what_a_provider_signed_is_given_back_in_its_order_under_its_own_ids() -> None:
    """OpenAI refuses reasoning without what followed it, Google a call without its signature."""
    details: dict[str, Any] = {"thought_signature": "abc"}
    parts: list[ModelResponsePart] = [
        ThinkingPart(content="Hm", signature="s", id="rs_1", provider_name="openai"),
        Said(content="Let me see. ", id="msg_1", provider_name="openai"),
        ToolCallPart("shell", {"command": "ls"}, tool_call_id="call_1", id="fc_1", provider_name="openai"),
        ThinkingPart(content="", signature="t", id="rs_2", provider_name="openai"),
        Said(content=" "),
        ToolCallPart("shell", "{}", tool_call_id="call_1", provider_details=details, provider_name="openai"),
    ]
    reply = build_model_reply(ModelResponse(parts=parts, provider_name="openai"), NAMES)
    said = AssistantMessage(text=reply.text, calls=reply.calls, call_ids=("b1c1", "b1c2"), said=reply.said)
    responses = tuple(Response(call_id=one, tool="shell", status="success") for one in said.call_ids)
    answers = ToolMessage(responses=responses)
    kept = AssistantMessage.model_validate_json(said.model_dump_json())
    _, told, answered = build_messages((UserMessage(text="Go"), kept, answers), NAMES)
    expected = [replace(part) for part in (*parts[:4], parts[5])]
    expected[4] = replace(parts[5], tool_call_id="call_1-2", args={})  # type: ignore[arg-type]
    assert isinstance(told, ModelResponse)
    assert (list(told.parts), told.provider_name) == (expected, "openai")
    assert [part.tool_call_id for part in answered.parts if isinstance(part, ToolReturnPart)] == ["call_1", "call_1-2"]


@pytest.mark.parametrize("said", ["garbage", {"parts": [{"part_kind": "text", "content": "other"}]}, [1]])
def test_what_cannot_be_given_back_any_more_is_told_without_it(said: Any) -> None:
    message = AssistantMessage(text="So", calls=(CallRequest(tool="shell", id="x"),), call_ids=("b1c1",), said=said)
    [told] = build_messages((message,), NAMES)
    assert [part.part_kind for part in told.parts] == ["text", "tool-call"]


def _nested(depth: int) -> str:
    return '{"a": ' * depth + "1" + "}" * depth


@pytest.mark.parametrize(
    "arguments",
    [_nested(101), _nested(197), _nested(5_000), '{"a": NaN}', '{"a": "\\ud800"}', '{"a": "\ud800"}'],
    ids=["101", "197", "5000", "nan", "escaped", "lone"],
)
async def test_S6_arguments_that_nobody_could_read_again_are_told_as_words(arguments: str) -> None:
    """What the reply holds must be readable in the workflow: there a failure to read is tried again for ever."""
    part = ToolCallPart("sh\ud800", arguments, tool_call_id="x\ud800")
    reply = build_model_reply(ModelResponse(parts=[Said(content="\ud800"), part]), NAMES)
    assert isinstance(reply.calls[0].arguments, str)
    converter = HoldfastPayloadConverter()
    assert converter.from_payloads(converter.to_payloads([reply]), [ModelReply]) == [reply]


async def test_calls_that_are_written_all_at_once_are_taken_up_at_their_end() -> None:
    async with provider() as server:
        asking = Asking("openai", server)
        calls: tuple[tuple[str, dict[str, str]], ...] = (
            ("shell", {"command": "ls"}),
            ("shell", {"command": "pwd"}),
            ("shell", {}),
        )
        found = await asking.ask(Act(calls=calls, together=True))
        await asking.models.close()
    assert found.reply
    assert found.early == [], "none of them was complete when the next began"
    assert [call.arguments for call in found.reply.calls] == [arguments for _, arguments in calls]


REASONS = {"openai": ("content_filter", "length"), "anthropic": ("refusal", "max_tokens")}


async def test_a_reply_that_ends_without_an_answer_is_none(asking: Asking) -> None:
    filtered, length = REASONS[asking.speaks]
    nothing = (await asking.ask(Act(reason=filtered))).failure
    assert nothing
    assert (nothing.type, nothing.non_retryable) == ("model_filtered", True)
    short = (await asking.ask(Act(reason=length))).failure
    assert short
    assert (short.type, short.non_retryable) == ("model_cut_off", True)


async def test_a_reply_that_was_cut_off_says_so(asking: Asking) -> None:
    _, length = REASONS[asking.speaks]
    half = (await asking.ask(Act(text="Once upon", reason=length))).reply
    assert half
    assert (half.text, half.cut) == ("Once upon", True)
    for arguments in ("", '{"command": "rm -'):
        called = (
            await asking.ask(Act(calls=(("shell", {"command": "ls"}), ("shell", arguments)), reason=length))
        ).reply
        assert called
        assert [call.arguments for call in called.calls] == [{"command": "ls"}, CUT_OFF_TEXT]


async def test_a_refusal_is_told_and_not_tried_again() -> None:
    async with provider() as server:
        asking = Asking("openai", server)
        failure = (await asking.ask(Act(refusal="Not that."))).failure
        await asking.models.close()
    assert failure
    assert (failure.type, failure.non_retryable) == ("model_filtered", True)
    assert "Not that." in str(failure)


@pytest.mark.parametrize(("wait", "others", "for_good"), [(3_600, True, True), (3_600, False, False), (5, True, False)])
def test_another_model_is_asked_rather_than_waited_for_one(wait: int, others: bool, for_good: bool) -> None:
    error = ModelRateLimitError("m", "later", retry_after=wait)
    assert build_model_failure(error, "m", Secrets(), has_others=others).non_retryable is for_good


def test_every_variable_that_providers_read_their_keys_from_is_known() -> None:
    source = Path(pydantic_ai.__file__).parent
    files = [*(source / "providers").glob("*.py"), *(source / "models").glob("*.py")]
    texts = [file.read_text() for file in files]
    read = {name for text in texts for name in re.findall(r"'([A-Z][A-Z0-9_]*_(?:KEY|TOKEN))'", text)}
    assert len(read) > 20
    assert read - MODEL_KEYS == set()


def test_a_package_that_is_missing_is_named_as_our_extra() -> None:
    failure = build_model_failure(ModuleNotFoundError("No module named 'openai'"), "local:fake", Secrets())
    assert failure.type == "model_not_installed"
    assert failure.non_retryable
    assert "pip install 'holdfast[openai]'" in str(failure)


def test_no_command_inherits_the_keys_of_models(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "MY_MODEL_KEY", "OTHER"):
        monkeypatch.setenv(name, "x")
    withhold_variables(
        *ModelsSettings(servers={"a": ModelServerSettings(url="http://a", key="${MY_MODEL_KEY}")}).key_variables
    )
    assert {"OPENAI_API_KEY", "MY_MODEL_KEY", "OTHER"} & set(build_environment({})) == {"OTHER"}


@pytest.mark.parametrize(
    ("url", "key"), [("${X}", None), ("http://a", "${A:-b}"), ("http://a", "k"), ("ftp://a", None)]
)
def test_a_server_is_named_as_it_is_and_its_key_by_reference(url: str, key: str | None) -> None:
    with pytest.raises(ValidationError):
        ModelServerSettings(url=url, key=key)


@pytest.mark.parametrize(
    ("name", "takes", "kinds"),
    [
        ("anthropic:claude-sonnet-4-5", {}, {"image", "document"}),
        ("openai:gpt-5.5", {}, {"image", "document"}),
        ("openai:gpt-5.5", {"anthropic:*": (), "openai:*": ("image",), "*": ("audio",)}, {"image"}),
        ("anthropic:claude-sonnet-4-5", {"*": ()}, set()),
        ("local:llava", {}, set()),
        ("local:llava", {"local:ll*": ("image",)}, {"image"}),
    ],
)
async def test_S34_what_a_model_is_shown_is_known_by_its_package_or_said_in_the_settings(
    monkeypatch: pytest.MonkeyPatch, name: str, takes: Any, kinds: set[str]
) -> None:
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(variable, KEY)
    local = ModelServerSettings(url="http://127.0.0.1:9/v1")
    models = Models(ModelsSettings(servers={"local": local}, takes=takes))
    assert models.find_media_kinds(name, await models.get(name)) == kinds
    await models.close()


def test_what_models_take_is_one_of_three_kinds_under_a_pattern_that_makes_sense() -> None:
    for wrong in ({"local:*": ("video",)}, {"[": ("image",)}, {"": ()}):
        with pytest.raises(ValidationError):
            ModelsSettings.model_validate({"takes": wrong})
