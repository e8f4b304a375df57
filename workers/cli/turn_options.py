"""The options that `turn start`, `chat` and `run` share: the model, limits, tools and the schedule of calls."""

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
NO_MODEL = "no model is set: give --model PROVIDER:MODEL or --script FILE, or set `default` under [models] in the "
NO_MODEL += "settings file"


def _parse_time(value: str) -> int:
    """The seconds of a number or of a duration such as 1h30m."""
    if not (value.isascii() and value.isdecimal()):
        return parse_seconds(value)
    if not 1 <= len(value) <= 9 or not 1 <= int(value) <= LONGEST_SECONDS:
        raise typer.BadParameter(f"{value[:40]!r} is not a duration between a second and a year")
    return int(value)


ModelName = Annotated[
    str | None,
    typer.Option("--model", metavar="PROVIDER:MODEL", help="Model; default: the one of the settings file."),
]
Fallbacks = Annotated[
    list[str] | None,
    typer.Option(
        "--fallback",
        metavar="PROVIDER:MODEL",
        help="Model to use when the one before it fails permanently. May be repeated.",
    ),
]
ScriptFile = Annotated[
    str | None, typer.Option("--script", metavar="FILE|-", help='Scripted model, JSON: [{"text": …, "calls": […]}].')
]
Instructions = Annotated[
    str | None,
    typer.Option("--instructions", metavar="TEXT|@FILE", help="System prompt for the model."),
]
InMode = Annotated[Mode | None, typer.Option("--mode", help="What runs without asking; the worker limits it.")]
Tools = Annotated[
    list[str] | None,
    typer.Option(
        "--tool",
        metavar="NAME",
        help="Allow only this tool; a pattern such as github__* works. May be repeated; default: all tools.",
    ),
]
Confirm = Annotated[
    Confirming,
    typer.Option("--confirm", help="always: ask about every call, read-only calls included."),
]
When = Annotated[
    Literal["all_ready", "streaming"],
    typer.Option(
        "--schedule",
        help="all_ready: start a batch when all its calls are ready; streaming: start each call when it is ready.",
    ),
]
Early = Annotated[
    bool,
    typer.Option(
        "--early", help="With streaming: start also calls that are not read-only before the reply is complete."
    ),
]
Parallel = Annotated[
    int | None,
    typer.Option("--parallel", metavar="N", min=1, max=PARALLEL_LIMIT, help="How many calls run at once; default: 50."),
]
OnError = Annotated[
    Literal["isolate", "abort"] | None,
    typer.Option("--on-error", help="isolate: other calls go on; abort: cancel them. Default: the tool decides."),
]
MaxSteps = Annotated[
    int | None,
    typer.Option("--max-steps", metavar="N", min=1, max=1_000_000, help="Most requests to the model in a turn."),
]
MaxCalls = Annotated[
    int | None, typer.Option("--max-calls", metavar="N", min=1, max=10_000_000, help="Most tool calls in a turn.")
]
MaxSeconds = Annotated[
    int | None,
    typer.Option(
        "--max-seconds",
        metavar="N|1h30m",
        help="Time limit of a turn, waiting for approvals included.",
        parser=_parse_time,
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option("--max-tokens", metavar="N", min=1, help="Most tokens that the model reads and writes in a turn."),
]
Timeout = Annotated[
    int | None,
    typer.Option("--timeout", metavar="N|1h30m", help="Cancel the turn after this time.", parser=_parse_time),
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
        """Whether they name a model."""
        return bool(self.model or self.script)

    def load_choice(self, data: Path | None = None) -> ModelChoice | None:
        """The chosen model, else that of the settings file; None without either. BadInput for an invalid choice."""
        if self.model and self.script:
            raise BadInput("give --model or --script, not both")
        if self.script and self.fallbacks:
            raise BadInput("--fallback needs --model: a script does not fail")
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
        """BadInput for options that would change only a part of the model of an existing session."""
        if (self.fallbacks or self.instructions is not None) and not self.is_given:
            raise BadInput(
                "--fallback and --instructions need --model or --script: the whole model of a session is replaced"
            )

    def get_choice(self, data: Path | None = None) -> ModelChoice:
        """As `load_choice`; BadInput when no model is chosen."""
        choice = self.load_choice(data)
        if choice is None:
            raise BadInput(NO_MODEL)
        return choice

    def _build_choice(self, **fields: Any) -> ModelChoice:
        words = read_words(self.instructions) if self.instructions is not None else None
        try:
            return ModelChoice(instructions=words, **fields)
        except ValidationError as error:
            raise BadInput(f"the choice of a model {explain_error(error)}") from None


def read_model_options(
    model: str | None, fallbacks: list[str] | None, script: str | None, instructions: str | None = None
) -> ModelWish:
    """The options that choose a model, in one value."""
    return ModelWish(model, tuple(fallbacks or ()), script, instructions)


def build_limits(steps: int | None, calls: int | None, seconds: int | None, tokens: int | None) -> TurnLimits:
    """The limits of a turn."""
    limits = {"steps": steps, "calls": calls, "seconds": seconds, "tokens": tokens}
    return TurnLimits.model_validate({name: value for name, value in limits.items() if value is not None})


def build_plan(schedule: str, early: bool, parallel: int | None, on_error: str | None) -> dict[str, object]:
    """How a turn starts its calls."""
    plan = {"schedule": Schedule(schedule), "early": early, "on_error": on_error}
    return {**plan, "parallel": parallel or MAX_EXECUTING}


def build_tool_options(tools: list[str] | None) -> dict[str, object]:
    """The tools that a turn is started with; BadInput for an invalid name or pattern."""
    try:
        return {"tools": TurnInput(tools=tuple(tools)).tools if tools else None}
    except ValidationError as error:
        raise BadInput(
            f"--tool takes the name of a tool, or a pattern such as github__*: {describe_problems(error)}"
        ) from None


def check_new_session(session_id: str, tools: list[str] | None, confirm: Confirming = Confirming.POLICY) -> None:
    """BadInput for options that only a new session takes."""
    option = "--tool" if tools else "--confirm" if confirm is Confirming.ALWAYS else None
    if option:
        raise BadInput(f"{option} is only for a new session: {session_id!r} exists already")


def check_plan(schedule: str, early: bool, *, grows: bool) -> None:
    """BadInput for --early where it has no effect."""
    if early and schedule != "streaming":
        raise BadInput("--early needs --schedule streaming: otherwise no call starts before the reply is complete")
    if early and not grows:
        raise BadInput("--early needs a reply that grows: give --model or --script, or --keep-open to add calls")


def _check_name(name: str) -> None:
    provider, _, model = name.partition(":")
    if name == "test":
        return
    if name == "scripted":
        raise BadInput("a scripted model needs its replies: give --script FILE")
    if not provider.strip() or not model.strip():
        shown = shorten_text(strip_controls(name), 100)
        raise BadInput(f"{shown!r} is not a model: give PROVIDER:MODEL, for example anthropic:claude-sonnet-4-5")
