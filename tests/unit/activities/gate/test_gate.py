"""The gate: one verdict per call, never an exception, and no decision stretched over another call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from holdfast.activities.gate.approval_checks import is_approved
from holdfast.activities.gate.gate import Gate
from holdfast.activities.hooks.hook_chain import Hooks
from holdfast.activities.hooks.hook_io import BeforeTool
from holdfast.activities.registry.registry import Registry
from holdfast.domain.approvals.approval import Confirmation, Decision
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.decision_checks import DecisionContext
from holdfast.domain.calls.tool import Effect, Invocation, Run, Tool
from holdfast.domain.calls.verdicts import Allow, Ask, BoundCall, Deny, Reject, Verdict
from holdfast.domain.content import CallError, Result
from holdfast.domain.turn.activity_io import ExecuteInput
from holdfast.errors import BadInput
from tests.support.hooks import function


class Fake(Invocation):
    """Does what it is told, also when it is asked about itself."""

    def __init__(
        self,
        *,
        describe: Callable[[], Any] = lambda: "Do it",
        safe: Callable[[], Any] = lambda: True,
        confirm: Callable[[], Any] = lambda: None,
    ) -> None:
        self._describe, self._safe, self._confirm = describe, safe, confirm

    def describe(self) -> str:
        return str(self._describe())

    def is_concurrency_safe(self) -> bool:
        answer: bool = self._safe()
        return answer

    async def should_confirm(self) -> Confirmation | None:
        answer: Confirmation | None = self._confirm()
        return answer

    async def execute(self, run: Run) -> Result:
        return Result.from_text("done")


class Copy(Tool):
    """A tool whose invocation each test chooses."""

    name = "copy_file"
    description = "Copy."
    effect = Effect.IDEMPOTENT
    timeout_seconds = 7
    heartbeat_seconds = 3

    class Parameters(BaseModel):
        model_config = ConfigDict(extra="forbid")

        source: str
        times: int = Field(default=1, ge=1)

    def __init__(self, build: Callable[[], Invocation] = Fake) -> None:
        self._build = build

    def build(self, arguments: Any, workspace: Path) -> Invocation:
        return self._build()


def fail(error: BaseException) -> Any:
    raise error


async def judge(tool: Tool, arguments: JsonValue = None, name: str = "copy_file") -> Verdict:
    arguments = {"source": "a"} if arguments is None else arguments
    verdict, invocation, _ = await Gate(Registry([tool]), Path("/")).judge(CallRequest(tool=name, arguments=arguments))
    assert (invocation is not None) == isinstance(verdict, Allow | Ask)
    return verdict


def error_of(verdict: Verdict) -> CallError:
    assert isinstance(verdict, Reject)
    return verdict.error


# What passes


async def test_S20_tool_that_asks_for_nothing_is_allowed_as_it_will_execute() -> None:
    tool = Copy()
    verdict = await judge(tool, {"source": "a"})
    assert isinstance(verdict, Allow)
    assert verdict.rule
    made = verdict.bound
    assert (made.title, made.arguments, made.concurrency_safe) == ("Do it", {"source": "a"}, True)
    assert (made.timeout_seconds, made.heartbeat_seconds) == (7, 3)
    assert made.tool == tool.build_declaration().build_ref()


async def test_S20_tool_that_asks_is_shown_with_the_arguments_as_they_will_execute() -> None:
    question = Confirmation(kind="edit", title="Copy?", arguments={"source": "a lie"}, diff="+ a")
    verdict = await judge(Copy(lambda: Fake(confirm=lambda: question)), {"source": "a", "times": "2"})
    assert isinstance(verdict, Ask)
    shown = verdict.confirmation.model_copy(update={"offers": ()})
    assert shown == question.model_copy(update={"arguments": {"source": "a", "times": 2}})
    assert verdict.bound.arguments == {"source": "a", "times": 2}


async def test_S22_what_was_validated_is_judged_alike_where_it_executes() -> None:
    first = await judge(Copy(), {"source": "a", "times": "2"})
    assert isinstance(first, Allow)
    again = await judge(Copy(), dict(first.bound.arguments))
    assert again == first


class Sending(Copy):
    name = "copy_file"

    class Parameters(BaseModel):
        source: str = Field(alias="from")
        target: str = Field(validation_alias="to")


async def test_S22_arguments_with_other_names_than_their_fields_can_be_executed() -> None:
    first = await judge(Sending(), {"from": "a", "to": "b"})
    assert isinstance(first, Allow)
    again = await judge(Sending(), dict(first.bound.arguments))
    assert again == first


async def test_S22_digest_changes_with_the_definition() -> None:
    class Reworded(Copy):
        description = "Copy, and tell the world."

    one, two = await judge(Copy()), await judge(Reworded())
    assert isinstance(one, Allow)
    assert isinstance(two, Allow)
    assert one.bound.digest != two.bound.digest


# The way of a judgement


def on_the_way(steps: list[str], *, broken: str = "") -> Gate:
    """A gate with one tool and one hook, both of which note when they are asked."""

    def note(step: str) -> None:
        steps.append(step)
        if step == broken:
            raise RuntimeError(step)

    class Noting(Copy):
        class Parameters(Copy.Parameters):
            @field_validator("source")
            @classmethod
            def check(cls, value: str) -> str:
                note(f"check {value}")
                return value

    def rewrite(call: BeforeTool) -> dict[str, Any]:
        note(f"hook {call.phase}")
        return {"arguments": {**call.arguments, "source": "b"}, "decision": "ask"}

    def build() -> Invocation:
        note("prepare")
        return Fake(confirm=lambda: note("confirm"))

    return Gate(Registry([Noting(build)]), Path("/"), hooks=Hooks([function(rewrite)]))


async def test_S35_arguments_are_checked_before_hooks_are_asked_and_again_when_these_rewrite_them() -> None:
    steps: list[str] = []
    request = CallRequest(tool="copy_file", arguments={"source": "a"})
    verdict = (await on_the_way(steps).judge(request)).verdict
    assert isinstance(verdict, Ask)
    assert (verdict.bound.arguments, verdict.bound.given) == ({"source": "b"}, {"source": "a"})
    once = list(dict.fromkeys(steps))
    assert once == ["check a", "hook validate", "check b", "prepare", "confirm"]
    assert steps.count("hook validate") == steps.count("prepare") == steps.count("confirm") == 1


@pytest.mark.parametrize(
    ("name", "arguments", "expected"), [("copy", {"source": "a"}, []), ("copy_file", {"times": 2}, [])]
)
async def test_S35_hooks_hear_of_no_call_that_could_not_run(
    name: str, arguments: dict[str, JsonValue], expected: list[str]
) -> None:
    steps: list[str] = []
    verdict = (await on_the_way(steps).judge(CallRequest(tool=name, arguments=arguments))).verdict
    assert (verdict.kind, steps) == ("reject", expected)


@pytest.mark.parametrize("step", ["check a", "check b", "prepare", "confirm"])
async def test_S7_a_step_that_breaks_is_the_last_one(step: str) -> None:
    steps: list[str] = []
    request = CallRequest(tool="copy_file", arguments={"source": "a"})
    error = error_of((await on_the_way(steps, broken=step).judge(request)).verdict)
    assert (error.type, steps[-1]) == ("RuntimeError", step)


@pytest.mark.parametrize("error", [SystemExit(4), KeyboardInterrupt(), GeneratorExit()], ids=lambda e: type(e).__name__)
async def test_S7_a_tool_that_asks_to_end_the_process_is_rejected(error: BaseException) -> None:
    found = error_of(await judge(Copy(lambda: fail(error))))
    assert f"'copy_file' could not be prepared: The tool raised {type(error).__name__}" in found.message


async def test_S7_a_tool_that_hangs_and_hears_of_no_stop_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.activities.gate.gate.JUDGE_SECONDS", 0.05)
    heard, ended = asyncio.Event(), asyncio.Event()

    class Hanging(Fake):
        async def should_confirm(self) -> Confirmation | None:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            heard.set()
            await ended.wait()
            return None

    found = error_of(await judge(Copy(Hanging)))
    assert (found.type, found.message) == ("validation_failed", "'copy_file' took over 0.05 seconds to be prepared")
    await asyncio.wait_for(heard.wait(), 5)
    ended.set()


async def test_S7_a_tool_that_cancels_its_own_preparation_is_rejected() -> None:
    found = error_of(await judge(Copy(lambda: fail(asyncio.CancelledError()))))
    assert (found.type, found.message) == ("validation_failed", "'copy_file' cancelled its own preparation")


# Unknown tools


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("copyfile", ' Did you mean "copy_file"?'),
        ("copy_flie", ' Did you mean "copy_file"?'),
        ("COMPLETELY-OTHER", ""),
        ("", ""),
    ],
)
async def test_S5_unknown_tool_is_rejected_with_suggestions(name: str, hint: str) -> None:
    error = error_of(await judge(Copy(), name=name))
    assert error == CallError(type="tool_not_registered", message=f"No tool is called {name!r}.{hint}")


async def test_S5_at_most_three_names_are_suggested_closest_first() -> None:
    tools = [type("T", (Copy,), {"name": f"list_file{end}"})() for end in ("s", "_a", "_b", "_c", "_dd")]
    gate = Gate(Registry(tools), Path("/"))
    verdict, _, _ = await gate.judge(CallRequest(tool="list_fils"))
    message = error_of(verdict).message
    assert message.startswith("No tool is called 'list_fils'. Did you mean \"list_files\" or ")
    assert message.count('"') == 6


async def test_S5_endless_name_is_rejected_in_a_sentence() -> None:
    error = error_of(await judge(Copy(), name="x" * 5_000_000))
    assert error.type == "tool_not_registered"
    assert len(error.message) < 300


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(BadInput, match="copy_file"):
        Registry([Copy(), Copy()])


# Invalid arguments


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, ["source: is required", "Its parameters: source (string, required), times (integer)"]),
        ({"source": 1}, ["source: must be text, not 1"]),
        ({"source": "a", "times": 0}, ["times:", "greater than or equal to 1", "got 0"]),
        ({"source": "a", "tims": 1}, ['tims: is not a parameter. Did you mean "times"?']),
        ([], ["arguments:"]),
        ("source=a", ['arguments: must be an object, not "source=a"']),
        (7, ["arguments:"]),
    ],
)
async def test_S6_invalid_arguments_are_rejected_in_words_a_model_can_act_on(
    arguments: JsonValue, words: list[str]
) -> None:
    error = error_of(await judge(Copy(), arguments))
    assert error.type == "invalid_tool_params"
    assert error.message.startswith("Invalid arguments for 'copy_file': ")
    for word in words:
        assert word in error.message
    assert "pydantic" not in error.message


async def test_S6_a_hundred_things_wrong_are_told_in_a_few_lines() -> None:
    error = error_of(await judge(Copy(), {f"{number}": "x" * 10_000 for number in range(1_000)}))
    assert error.type == "invalid_tool_params"
    assert len(error.message) < 3_000


async def test_S6_value_error_of_the_tool_is_told_as_invalid_arguments() -> None:
    error = error_of(await judge(Copy(lambda: fail(ValueError("the moon is full" + "x" * 10_000)))))
    assert error.type == "invalid_tool_params"
    assert "the moon is full" in error.message
    assert len(error.message) < 1_200


@pytest.mark.parametrize("content", ["x" * 5_000_000, "é" * 600_000], ids=["ascii", "bytes"])
async def test_S6_oversized_arguments_are_rejected_with_the_limit(content: str) -> None:
    error = error_of(await judge(Copy(), {"source": content}))
    assert error.type == "invalid_tool_params"
    assert "1,048,576" in error.message
    assert len(error.message) < 300


async def test_S6_arguments_just_below_the_limit_pass() -> None:
    assert isinstance(await judge(Copy(), {"source": "x" * 1_000_000}), Allow)


class Numbers(Copy):
    name = "copy_file"

    class Parameters(BaseModel):
        number: Any


@pytest.mark.parametrize("number", [10**5_000, "\ud800"], ids=["huge", "surrogate"])
async def test_S7_value_that_json_cannot_say_rejects_its_call(number: Any) -> None:
    assert error_of(await judge(Numbers(), {"number": number})).type


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
async def test_S22_number_that_json_cannot_say_is_rejected(number: float) -> None:
    error = error_of(await judge(Numbers(), {"number": number}))
    assert "do not survive being written down" in error.message


# Tools that break


class UnreadablePayload(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


BROKEN = [RuntimeError("boom"), KeyError("boom"), RecursionError("boom"), OSError(5, "boom"), AssertionError("boom")]


@pytest.mark.parametrize("error", BROKEN, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("where", ["build", "describe", "confirm"])
async def test_S7_tool_that_raises_is_the_rejection_of_its_call(where: str, error: Exception) -> None:
    tools = {
        "build": Copy(lambda: fail(error)),
        "describe": Copy(lambda: Fake(describe=lambda: fail(error))),
        "confirm": Copy(lambda: Fake(confirm=lambda: fail(error))),
    }
    found = error_of(await judge(tools[where]))
    assert found.type == type(error).__name__
    assert "'copy_file' could not be prepared" in found.message
    assert "boom" in found.message


async def test_S7_error_that_cannot_even_be_printed_is_the_rejection_of_its_call() -> None:
    assert error_of(await judge(Copy(lambda: fail(UnreadablePayload())))).type == "UnreadablePayload"


def test_tool_that_cannot_say_what_it_is_never_gets_into_the_catalogue() -> None:
    class Broken(Copy):
        def build_declaration(self) -> Any:
            raise RuntimeError("boom")

    with pytest.raises(BadInput, match=r"Broken\) from this program has no valid declaration: boom"):
        Registry([Broken()])


@pytest.mark.parametrize("answer", ["yes", 7, object(), {"kind": "exec"}])
async def test_S7_confirmation_that_is_none_is_the_rejection_of_its_call(answer: object) -> None:
    assert error_of(await judge(Copy(lambda: Fake(confirm=lambda: answer)))).type


async def test_S7_validator_that_breaks_is_the_rejection_of_its_call() -> None:
    class Picky(Copy):
        class Parameters(BaseModel):
            source: str

            @field_validator("source")
            @classmethod
            def check(cls, value: str) -> str:
                raise ZeroDivisionError("boom")

    assert error_of(await judge(Picky())).type == "ZeroDivisionError"


async def test_S7_invocation_that_is_none_is_the_rejection_of_its_call() -> None:
    tool = Copy(lambda: None)  # type: ignore[arg-type, return-value]
    error = error_of(await judge(tool))
    assert (error.type, "its build gave None" in error.message) == ("TypeError", True)


@pytest.mark.parametrize("error", BROKEN, ids=lambda error: type(error).__name__)
async def test_S10_tool_that_cannot_say_whether_it_is_safe_is_not(error: Exception) -> None:
    verdict = await judge(Copy(lambda: Fake(safe=lambda: fail(error))))
    assert isinstance(verdict, Allow)
    assert verdict.bound.concurrency_safe is False


async def test_long_title_is_shortened() -> None:
    verdict = await judge(Copy(lambda: Fake(describe=lambda: "x" * 1_000_000)))
    assert isinstance(verdict, Allow)
    assert len(verdict.bound.title) <= 500


# What a decision covers


def question(digest: str = "d1") -> Ask:
    tool = Copy().build_declaration().build_ref()
    made = BoundCall(tool=tool, title="t", arguments={}, digest=digest, timeout_seconds=1, heartbeat_seconds=1)
    return Ask(rule="r", bound=made, confirmation=Confirmation(kind="exec", title="t"))


def said(**changes: Any) -> Decision:
    return Decision.model_validate(
        {"approval_id": "org/turn/b1c1/1", "digest": "d1", "outcome": "proceed_once", **changes}
    )


@pytest.mark.parametrize(
    ("decision", "covered"),
    [
        (said(), True),
        (said(approval_id="org/turn/b1c1/7"), True),  # the revision was the workflow's to check
        (said(note="n", by="b"), True),
        (None, False),
        (said(digest="d2"), False),
        (said(digest=""), False),
        (said(outcome="respond", content="x"), False),
        (said(outcome="cancel"), False),
        (said(approval_id="org/turn2/b1c1/1"), False),
        (said(approval_id="turn/b1c1/1"), False),
        (said(approval_id="org/turn/b1c2/1"), False),
        (said(approval_id="org/turn/b1c1"), False),
        (said(approval_id="garbage"), False),
        (said(approval_id=""), False),
    ],
)
def test_S22_decision_covers_only_its_own_call_with_its_own_digest(decision: Decision | None, covered: bool) -> None:
    asked = question()
    input = ExecuteInput(call_id="b1c1", bound=asked.bound, approvals=(decision,) if decision else ())
    assert is_approved(input, asked, DecisionContext("org/turn"), datetime.now(UTC), lambda shown, _: shown) is covered


def test_S22_unused_verdicts_stay_apart() -> None:
    """A refusal of policy carries nothing that could be run."""
    assert "bound" not in Deny.model_fields
    assert "bound" not in Reject.model_fields
