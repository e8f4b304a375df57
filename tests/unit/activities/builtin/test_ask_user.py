"""`ask_user`: a question that only a person's answer answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.activities.builtin.ask_user import AskUser
from holdfast.activities.gate.gate import Gate
from holdfast.activities.registry.registry import Registry
from holdfast.domain.approvals.approval import Confirmation
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.tool import Effect, Interrupt, ToolFailure
from holdfast.domain.calls.verdicts import Ask, Reject, Verdict
from holdfast.testing import FakeRun
from tests.support.tools import build


async def judged(**arguments: Any) -> Verdict:
    verdict, _, _ = await Gate(Registry([AskUser()]), Path()).judge(CallRequest(tool="ask_user", arguments=arguments))
    return verdict


async def asked(**arguments: Any) -> Confirmation:
    verdict = await judged(**arguments)
    assert isinstance(verdict, Ask)
    return verdict.confirmation


async def test_S20_question_is_asked_with_its_options() -> None:
    shown = await asked(question="Which one?", options=["left", "right"], allow_other=False)
    assert (shown.kind, shown.question) == ("question", "Which one?")
    assert (shown.options, shown.other) == (("left", "right"), False)
    assert "Which one?" in shown.title


async def test_S20_question_without_options_takes_any_answer() -> None:
    shown = await asked(question="Why?")
    assert (shown.options, shown.other) == ((), True)


async def test_S20_longest_question_is_shown_whole() -> None:
    question = "é" * 4_999 + "?"
    assert (await asked(question=question)).question == question


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "question: is required"),
        ({"question": ""}, "question: must have at least 1 character"),
        ({"question": " \n\t"}, "question: the question is blank"),
        ({"question": "x" * 5_001}, "question: must have at most 5000 characters"),
        ({"question": "Q?", "options": "left"}, 'options: must be an array, not "left"'),
        ({"question": "Q?", "options": ["a", "a"]}, "options: the same option is given twice"),
        ({"question": "Q?", "options": [""]}, "options[0]: must have at least 1 character"),
        ({"question": "Q?", "options": ["a", "x" * 201]}, "options[1]: must have at most 200 characters"),
        ({"question": "Q?", "options": [str(number) for number in range(21)]}, "options: must have at most 20 items"),
        ({"question": "Q?", "option": ["a"]}, 'option: is not a parameter. Did you mean "options"'),
        ({"question": "Q?", "allow_other": False}, "give options, or allow others"),
        ({"question": "Q?", "allow_other": False, "options": []}, "give options, or allow others"),
    ],
)
async def test_S6_question_that_cannot_be_answered_is_refused(arguments: dict[str, Any], words: str) -> None:
    verdict = await judged(**arguments)
    assert isinstance(verdict, Reject)
    assert verdict.error.type == "invalid_tool_params"
    assert words in verdict.error.message


@pytest.mark.parametrize("options", [[" "], ["a", "\n"], ["\u200b"]])
async def test_S6_option_that_nobody_can_see_is_refused(options: list[str]) -> None:
    assert isinstance(await judged(question="Q?", options=options, allow_other=False), Reject)


async def test_question_that_is_run_without_an_answer_fails() -> None:
    with pytest.raises(ToolFailure) as failure:
        await build(AskUser(), Path(), question="Q?").execute(FakeRun())
    assert failure.value.type == "not_answered"


def test_S18_question_changes_nothing_and_ends_with_a_new_message() -> None:
    assert (AskUser.effect, AskUser.interrupt) == (Effect.READ, Interrupt.CANCEL)
    assert build(AskUser(), Path(), question="Q?").is_concurrency_safe()
