"""Which model answers, what a turn may use up, how it goes: the options that `turn start`, `chat` and `run` share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import ValidationError

from holdfast.domain.base import describe_problems
from holdfast.domain.calls.scheduling import MAX_EXECUTING, Schedule
from holdfast.domain.conversation.messages import ModelChoice
from holdfast.domain.modes import Confirming, Mode
from holdfast.domain.turn.turn_io import TurnInput, TurnLimits
from holdfast.errors import BadInput
from holdfast.util.text import shorten_text, strip_controls
from holdfast.workers.cli.options import parse_seconds
from holdfast.workers.cli.resolve_settings import resolve_client_settings
from holdfast.workers.terminal.input_files import explain_error, read_script, read_words

PARALLEL_LIMIT = 50
LONGEST_SECONDS = 366 * 86_400
NO_MODEL = "no model is chosen: give --model PROVIDER:MODEL or --script FILE, or set `default` under [models] in the "
NO_MODEL += "settings file"


def _parse_time(value: str) -> int:
    """So many seconds, or a time as people write it."""
    if not (value.isascii() and value.isdecimal()):
        return parse_seconds(value)
    if not 1 <= len(value) <= 9 or not 1 <= int(value) <= LONGEST_SECONDS:
        raise typer.BadParameter(f"{value[:40]!r} is no time between a second and a year")
    return int(value)


ModelName = Annotated[
    str | None,
    typer.Option("--model", metavar="PROVIDER:MODEL", help="The model that answers; else that of the settings file."),
]
Fallbacks = Annotated[
    list[str] | None,
    typer.Option(
        "--fallback",
        metavar="PROVIDER:MODEL",
        help="Asked when the one before it fails for good; as often as you like.",
    ),
]
ScriptFile = Annotated[
    str | None, typer.Option("--script", metavar="FILE|-", help='Scripted model, JSON: [{"text": …, "calls": […]}].')
]
Instructions = Annotated[
    str | None,
    typer.Option("--instructions", metavar="TEXT|@FILE", help="What the model is told before everything else."),
]
InMode = Annotated[
    Mode | None, typer.Option("--mode", help="How much proceeds without asking, as far as the worker permits.")
]
Tools = Annotated[
    list[str] | None,
    typer.Option(
        "--tool",
        metavar="NAME",
        help="The only tools it may use, by name or as github__*; as often as you like, all when left out.",
    ),
]
Confirm = Annotated[
    Confirming,
    typer.Option("--confirm", help="always: every call is asked about, those that merely read included."),
]
When = Annotated[
    Literal["all_ready", "streaming"],
    typer.Option(
        "--schedule",
        help="When calls begin: when all of a batch are ready, or each as soon as it is, while the model writes.",
    ),
]
Early = Annotated[
    bool,
    typer.Option("--early", help="With streaming: also what does more than read begins before the reply is complete."),
]
Parallel = Annotated[
    int | None,
    typer.Option("--parallel", metavar="N", min=1, max=PARALLEL_LIMIT, help="How many calls run at once; else 50."),
]
OnError = Annotated[
    Literal["isolate", "abort"] | None,
    typer.Option("--on-error", help="A call's failure is its own, or cancels those beside it; else its tool says."),
]
MaxSteps = Annotated[
    int | None,
    typer.Option("--max-steps", metavar="N", min=1, max=1_000_000, help="Requests to the model, of one turn."),
]
MaxCalls = Annotated[
    int | None, typer.Option("--max-calls", metavar="N", min=1, max=10_000_000, help="Tool calls of one turn.")
]
MaxSeconds = Annotated[
    int | None,
    typer.Option("--max-seconds", metavar="N|1h30m", help="From a turn's start, people included.", parser=_parse_time),
]
MaxTokens = Annotated[
    int | None, typer.Option("--max-tokens", metavar="N", min=1, help="What the model reads and writes in one turn.")
]
Timeout = Annotated[
    int | None,
    typer.Option("--timeout", metavar="N|1h30m", help="Cancel the turn when it takes longer.", parser=_parse_time),
]


@dataclass(frozen=True)
class ModelWish:
    """The options that choose a model."""

    model: str | None = None
    fallbacks: tuple[str, ...] = ()
    script: str | None = None
    instructions: str | None = None

    @property
    def is_given(self) -> bool:
        """Do they name a model?"""
        return bool(self.model or self.script)

    def load_choice(self, data: Path | None = None) -> ModelChoice | None:
        """The model that was named, else that of the settings file; None when neither names one.

        BadInput for what no model can be.
        """
        if self.model and self.script:
            raise BadInput("give --model or --script, not both: which one is to answer?")
        if self.script and self.fallbacks:
            raise BadInput("--fallback goes with --model: a script has nobody to fall back on")
        if self.script:
            read = read_script(self.script)
            return self._build_choice(script=read.replies, delegated=read.delegated)
        name = self.model or resolve_client_settings(data).models.default
        if name is None:
            if self.fallbacks:
                raise BadInput(NO_MODEL)
            return None
        for one in (name, *self.fallbacks):
            _check_name(one)
        return self._build_choice(name=name, fallbacks=self.fallbacks)

    def check_whole(self) -> None:
        """BadInput for what changes part of the model of a session that is there."""
        if (self.fallbacks or self.instructions is not None) and not self.is_given:
            raise BadInput(
                "--fallback and --instructions go with --model or --script: a session's model is changed whole"
            )

    def get_choice(self, data: Path | None = None) -> ModelChoice:
        """The same; BadInput when there is none."""
        choice = self.load_choice(data)
        if choice is None:
            raise BadInput(NO_MODEL)
        return choice

    def _build_choice(self, **fields: Any) -> ModelChoice:
        words = read_words(self.instructions) if self.instructions is not None else None
        try:
            return ModelChoice(instructions=words, **fields)
        except ValidationError as error:
            raise BadInput(f"this choice of a model {explain_error(error)}") from None


def read_model_options(
    model: str | None, fallbacks: list[str] | None, script: str | None, instructions: str | None = None
) -> ModelWish:
    """The options that choose a model, in one value."""
    return ModelWish(model, tuple(fallbacks or ()), script, instructions)


def build_limits(steps: int | None, calls: int | None, seconds: int | None, tokens: int | None) -> TurnLimits:
    """What a turn may use up."""
    said = {"steps": steps, "calls": calls, "seconds": seconds, "tokens": tokens}
    return TurnLimits.model_validate({name: value for name, value in said.items() if value is not None})


def build_plan(schedule: str, early: bool, parallel: int | None, on_error: str | None) -> dict[str, object]:
    """How a turn starts its calls."""
    said = {"schedule": Schedule(schedule), "early": early, "on_error": on_error}
    return {**said, "parallel": parallel or MAX_EXECUTING}


def build_tool_options(tools: list[str] | None) -> dict[str, object]:
    """The tools that a turn is started with; BadInput for what cannot name one."""
    try:
        return {"tools": TurnInput(tools=tuple(tools)).tools if tools else None}
    except ValidationError as error:
        raise BadInput(
            f"--tool takes the name of a tool, or a pattern as github__*: {describe_problems(error)}"
        ) from None


def check_new_session(session_id: str, tools: list[str] | None, confirm: Confirming = Confirming.POLICY) -> None:
    """BadInput for what only the start of a session can say."""
    option = "--tool" if tools else "--confirm" if confirm is Confirming.ALWAYS else None
    if option:
        raise BadInput(f"{option} is for a session that begins: {session_id!r} is there, and keeps what it began with")


def check_plan(schedule: str, early: bool, *, grows: bool) -> None:
    """BadInput for a plan that says nothing."""
    if early and schedule != "streaming":
        raise BadInput("--early needs --schedule streaming: otherwise nothing begins before the reply is complete")
    if early and not grows:
        raise BadInput("--early is for replies that are still written: give --script, or --keep-open to add calls")


def _check_name(name: str) -> None:
    provider, _, model = name.partition(":")
    if name == "test":
        return
    if name == "scripted":
        raise BadInput("a scripted model needs its replies: give --script FILE")
    if not provider.strip() or not model.strip():
        shown = shorten_text(strip_controls(name), 100)
        raise BadInput(f"{shown!r} is no model: say PROVIDER:MODEL, as in anthropic:claude-sonnet-4-5")
