"""`ask_user`: a question for the person, whose answer is the result. It waits in the inbox like an approval."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from holdfast.domain.approvals.approval import Confirmation
from holdfast.domain.calls.tool import Effect, Interrupt, Invocation, Run, StrictParameters, Tool, ToolFailure
from holdfast.domain.content import Result
from holdfast.util.text import strip_controls

Option = Annotated[str, Field(min_length=1, max_length=200)]


class AskUser(Tool):
    """Asks a person a question; the answer is the result of the call."""

    name = "ask_user"
    description = (
        "Ask the user a question and wait for the answer, however long it takes. Offer options where there are few; "
        "the user may answer in other words unless you forbid it."
    )
    effect = Effect.READ
    interrupt = Interrupt.CANCEL
    timeout_seconds = 60

    class Parameters(StrictParameters):
        """Arguments."""

        question: str = Field(
            description="The question, with what is needed to answer it", min_length=1, max_length=5_000
        )
        options: list[Option] = Field(default_factory=list, max_length=20, description="Answers to choose from")
        allow_other: bool = Field(default=True, description="May the answer be something else than the options?")

        @field_validator("question")
        @classmethod
        def _check_question(cls, value: str) -> str:
            if not value.strip():
                raise ValueError("the question is blank")
            return value

        @field_validator("options")
        @classmethod
        def _check_options(cls, value: list[str]) -> list[str]:
            if len(set(value)) != len(value):
                raise ValueError("the same option is given twice")
            if not all(strip_controls(option).strip() for option in value):
                raise ValueError("an option is blank")
            return value

    def build(self, arguments: Parameters, workspace: Path) -> Invocation:
        """Bind the question. ValueError when no answer to it would be allowed."""
        if not arguments.allow_other and not arguments.options:
            raise ValueError("without options every answer is another one: give options, or allow others")
        return _AskInvocation(arguments)


class _AskInvocation(Invocation):
    def __init__(self, arguments: AskUser.Parameters) -> None:
        self._arguments = arguments

    def describe(self) -> str:
        return f"Ask: {self._arguments.question}"

    def is_concurrency_safe(self) -> bool:
        return True

    async def should_confirm(self) -> Confirmation | None:
        given = self._arguments
        options = tuple(given.options)
        return Confirmation(
            kind="question",
            title=self.describe(),
            question=given.question,
            options=options,
            other=given.allow_other,
            told=("question", "options", "allow_other"),
        )

    async def execute(self, run: Run) -> Result:
        raise ToolFailure("not_answered", "Nobody answered the question")
