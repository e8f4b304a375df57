"""The API of a tool written as a class; `decorator.py` makes one from a function.

A `Tool` declares itself and builds an `Invocation` from validated arguments. An invocation can describe itself, say
whether a person must confirm it, and execute. Cancellation reaches `execute` as `asyncio.CancelledError`: stop what
you started, then let it through. A tool never sees Temporal.

    class Greet(Tool):
        name = "greet"
        description = "Greet somebody."
        effect = Effect.READ

        class Parameters(BaseModel):
            who: str = Field(description="Whom to greet")

        def build(self, arguments: Parameters, workspace: Path) -> Invocation:
            return Greeting(arguments.who)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from holdfast.domain.approvals.approval import Confirmation, QuestionAnswer, ToolNotes
from holdfast.domain.base import Data
from holdfast.domain.content import Part, Result
from holdfast.domain.context import Context, Dependence
from holdfast.util.json_values import digest_canonical


class Effect(StrEnum):
    """The effect of a call of the tool, and so whether the engine may repeat the call after a crash (S31)."""

    READ = "read"
    """The call changes nothing."""
    IDEMPOTENT = "idempotent"
    """The call changes something; a repetition changes nothing more."""
    ONCE = "once"
    """The call must not be repeated."""


class Interrupt(StrEnum):
    """The effect of a user's new message on a running call (S18)."""

    CANCEL = "cancel"
    """The call is stopped."""
    BLOCK = "block"
    """The call finishes first."""


AbortsSiblings = bool | Literal["streaming"]


class Traits(Data):
    """How the engine treats the calls of a tool. Not part of the definition that an approval covers."""

    interrupt: Interrupt = Interrupt.BLOCK
    aborts_siblings: AbortsSiblings = False
    """Its error cancels the other calls of the batch (S15): always, or only under the schedule `streaming`."""
    live_output: bool = False
    """It writes output while it runs."""
    markdown: bool = False
    """Its output is markdown."""
    task_queue: str | None = None
    """The task queue on which its calls must run; None for that of the turn."""
    on_host: bool = False
    """Its calls run on the host that validated them, retries included."""
    asks: bool = False
    """It may ask a person while it runs."""
    open_world: bool = False
    """It communicates with the outside world: its results are not trusted, and its arguments leave the machine."""
    depends_on: tuple[Dependence, ...] = ()
    """The parts of the turn's context that the digest of its calls includes (S47)."""
    delegates: bool = False
    """Each of its calls runs as a turn, with the arguments of `delegate`."""
    destructive: bool = False
    """It may destroy something that cannot be restored: mode `yolo` asks about its calls."""


_DEFINITION_FIELDS = {"name", "description", "parameters", "effect", "server"}
"""The fields that an approval covers: after a change of any of them, a person is asked again."""


class Declaration(Data):
    """The description of a tool as data: its name, parameters, effect and traits."""

    name: str
    description: str
    parameters: dict[str, JsonValue]
    """The JSON schema of the arguments."""
    effect: Effect
    server: str | None = None
    display_name: str | None = None
    traits: Traits = Traits()
    origin: str | None = None
    """For a tool of an MCP server: the digest of the server's whole definition of it."""
    own_name: str | None = None
    """For a tool of an MCP server: its name on the server."""

    @property
    def definition(self) -> dict[str, JsonValue]:
        """The part of the declaration that an approval of its calls covers."""
        fields = self.model_dump(mode="json", include=_DEFINITION_FIELDS)
        return fields if self.origin is None else {**fields, "origin": self.origin}

    @property
    def digest(self) -> str:
        """The digest of the definition. A field that is added to this class later does not change it."""
        return digest_canonical(self.definition)

    def build_ref(self) -> ToolRef:
        """Return the part that a call keeps in the history."""
        return ToolRef(
            name=self.name,
            effect=self.effect,
            server=self.server,
            definition=self.digest,
            display_name=self.display_name,
            traits=self.traits,
            own_name=self.own_name,
        )

    def describe_for_model(self) -> dict[str, JsonValue]:
        """Return the name, description and parameters, for the request to a model."""
        return {"name": self.name, "description": self.description, "parameters": self.parameters}


class ToolRef(Data):
    """A declaration without description and schema, as calls in a history keep it."""

    name: str
    effect: Effect
    server: str | None = None
    definition: str
    """The digest of the definition."""
    display_name: str | None = None
    traits: Traits = Traits()
    own_name: str | None = None
    """For a tool of an MCP server: its name on the server."""


class Run(Protocol):
    """The running call, as its tool sees it: ids, workspace, live output, and questions to a person."""

    @property
    def call_id(self) -> str:
        """The engine's id of this call, unique within its turn."""

    @property
    def key(self) -> str:
        """An id of this call that is unique across turns, and the same for every attempt."""

    @property
    def effect_key(self) -> str:
        """An idempotency key for other services: the same for every attempt at this effect.

        It differs when the arguments differ, and after a person decides that the call runs again.
        """

    @property
    def is_unasked(self) -> bool:
        """Did a rule, a mode or a grant allow this call, so that nobody was asked?"""

    @property
    def is_handing_over(self) -> bool:
        """Is this worker shutting down? Then leave supervised commands running for the next worker."""

    @property
    def workspace(self) -> Path:
        """The workspace folder of this worker."""

    @property
    def state(self) -> JsonValue:
        """The state that an earlier `execute` passed to `NeedsAnswer`; None in the first."""

    @property
    def answer(self) -> QuestionAnswer | None:
        """The answer to the question of that `NeedsAnswer`."""

    async def ask(self, question: Confirmation) -> QuestionAnswer:
        """Ask a person and wait for the answer; the timeout of the tool pauses. For tools that declare `asks`.

        The question is lost when this process dies. A tool that can go on from saved state raises `NeedsAnswer`
        instead.
        """

    def write(self, text: str) -> None:
        """Append to the live output. Cheap; viewers see the end of the output within a second."""

    def report_process(self, pid: int) -> None:
        """Report the id of the running process to viewers."""


class ToolFailure(Exception):
    """Raise in `execute` to end a call as an `error` with this type and message.

    `parts` is the output until then.
    """

    def __init__(self, type: str, message: str, parts: tuple[Part, ...] = ()) -> None:
        super().__init__(message)
        self.type = type
        self.parts = parts


class OutcomeUnknown(Exception):
    """Raise in `execute` when it is unknown whether the call took effect. A person is then asked what to do.

    Raised in place of `CancelledError`, it says so of a call that was stopped; then nobody is asked.
    """

    def __init__(self, message: str, parts: tuple[Part, ...] = ()) -> None:
        super().__init__(message)
        self.parts = parts


class NeedsAnswer(Exception):
    """Raise in `execute` to ask a person; after the answer, `execute` is called again with this `state`.

    The wait survives the end of any process. Put into `state` what must not be repeated.
    """

    def __init__(self, question: Confirmation, state: JsonValue = None) -> None:
        super().__init__(question.question or question.title)
        self.question = question
        self.state = state


class StrictParameters(BaseModel):
    """A base class for `Parameters` that rejects unknown arguments, so that a misspelt one is not ignored."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class Retries:
    """The failures after which the worker runs a tool again, and how often.

    Only for tools with the effect `read` or `idempotent`: the registry refuses a `once` tool with retries. All attempts
    share the tool's `timeout_seconds` and its live output.
    """

    on: tuple[type[Exception] | str, ...]
    """Exception classes, and types of `ToolFailure` by name."""
    attempts: int = 3
    """The number of attempts in all, 2 to 10."""
    wait_seconds: float = 1.0
    """The pause before the second attempt, 0 to 60 seconds. It doubles for each further attempt, up to a minute."""

    def is_retryable(self, error: BaseException) -> bool:
        """May the tool run again after this error?"""
        kinds = tuple(kind for kind in self.on if isinstance(kind, type))
        return isinstance(error, kinds) or (isinstance(error, ToolFailure) and error.type in self.on)


class DecisionNotice(Data):
    """The decision that lets a call run, as `Invocation.on_decision` gets it; of several, the last.

    There is no notice of a call that does not run (refused, expired, answered in place of the tool), nor of one that
    runs without a decision of its own: by a rule, by an earlier grant, or because nobody answered in time.
    """

    action: str
    """The value of a `DecisionAction`: `proceed_once`, `proceed_always` …"""
    by: str | None = None
    note: str | None = None
    changed: bool = False
    """A person changed the arguments."""
    arguments: Mapping[str, JsonValue] = Field(default_factory=dict)
    """The arguments as they will execute: checked, and with the changes of hooks and people."""


class Invocation(ABC):
    """A tool bound to validated arguments."""

    @abstractmethod
    def describe(self) -> str:
        """Return one line for people that says what this call would do."""

    def is_concurrency_safe(self) -> bool:
        """May this call run at the same time as other calls that return True here (S10)?"""
        return False

    def list_dependences(self) -> tuple[Dependence, ...] | None:
        """The parts of the turn's context that this call depends on; None for the `depends_on` of its tool."""
        return None

    def digest_before(self) -> Mapping[str, str]:
        """The files that this call would change: their present digests, by path in the workspace.

        An approval covers these digests: when a file has changed since, a person is asked again. When a file is not as
        the turn last saw it, the call is refused.
        """
        return {}

    def digest_after(self) -> Mapping[str, str]:
        """The digests of the same files after this call. When the files have these already, the call has run."""
        return {}

    @property
    def is_resumable(self) -> bool:
        """Can `execute` find the work of an earlier attempt, and go on with it?"""
        return False

    async def verify(self, run: Run) -> Result | bool | None:
        """Did an earlier attempt take effect? Called after a crash.

        Returns the result of that attempt, or True, False, or None when it is not known.
        """
        return None

    async def stop(self, run: Run) -> bool:
        """Stop what still runs of an earlier attempt, and start nothing. Returns whether anything ran."""
        return False

    async def clean_up(self, run: Run) -> None:
        """Remove what was kept to find the work of this call again: its end is recorded."""
        return

    def describe_tool_change(self) -> str | None:
        """Describe how its tool differs from the approved definition; then a person is asked, whatever a rule says.

        None when it does not differ.
        """
        return None

    def build_confirmation(self) -> Confirmation | None:
        """Build the confirmation for when a rule or a hook asks about this call; None shows its title only."""
        return None

    async def should_confirm(self) -> Confirmation | None:
        """Return the confirmation that a person must give before this call runs; None when none is needed."""
        return None

    async def on_decision(self, decision: DecisionNotice) -> None:
        """Handle the decision that lets this call run. Called in the executing activity, before `execute`.

        It is called in every attempt, so it must be repeatable. An exception ends the call with that error, and
        `execute` is not called. `DecisionNotice` says which decisions have no notice.
        """
        return

    @abstractmethod
    async def execute(self, run: Run) -> Result:
        """Run the call and return its result.

        Raise ToolFailure to fail with a type and a message, NeedsAnswer to ask a person and go on in another `execute`,
        OutcomeUnknown when it is unknown whether the call took effect. Any other exception ends the call as an error
        with its type and message. A stop arrives as asyncio.CancelledError: end what was started, then raise it again.
        """


class Tool(ABC):
    """A tool: its declaration, and `build`, which binds arguments to an invocation.

    `Parameters` is a pydantic model, or the JSON schema of an object; `build` gets an instance of the model, or the
    arguments as a dict. Both are validated before. `Traits` explains the attributes that have no comment here.
    """

    name: str
    display_name: str | None = None
    description: str
    effect: Effect = Effect.ONCE
    interrupt: Interrupt = Interrupt.BLOCK
    aborts_siblings: AbortsSiblings = False
    live_output: bool = False
    markdown: bool = False
    task_queue: str | None = None
    on_host: bool = False
    asks: bool = False
    open_world: bool = False
    depends_on: tuple[Dependence, ...] = ()
    delegates: bool = False
    destructive: bool = False
    edits: str | None = None
    """The argument whose text a person may change in an editor before the call runs."""
    checks_quickly: bool = False
    """`build` and the methods that describe an invocation take milliseconds. Calls of this tool are then validated by a
    local activity, which costs less; else by a regular one, so that the turn can handle messages meanwhile."""
    retries: Retries | None = None
    """The failures after which the tool runs again. None: every failure ends the call."""
    timeout_seconds: float = 600
    heartbeat_seconds: float = 10
    """The time without a heartbeat of its worker after which a call counts as lost."""
    Parameters: type[BaseModel] | Mapping[str, JsonValue]

    def build_declaration(self) -> Declaration:
        """Build the declaration of this tool."""
        parameters = self.Parameters
        schema = parameters.model_json_schema() if isinstance(parameters, type) else dict(parameters)
        return Declaration(
            name=self.name,
            description=self.description,
            parameters=schema,
            effect=self.effect,
            display_name=self.display_name,
            traits=Traits.model_validate({name: getattr(self, name) for name in Traits.model_fields}),
        )

    def build_notes(self) -> ToolNotes | None:
        """Build notes about a tool of an MCP server, for the person who decides; None for other tools."""
        return None

    @abstractmethod
    def build(self, arguments: Any, workspace: Path) -> Invocation:
        """Bind validated arguments. Raise ValueError for invalid values that the schema cannot express."""

    def build_in(self, arguments: Any, workspace: Path, context: Context) -> Invocation:
        """Bind validated arguments in the context of a turn. For tools with `depends_on`."""
        return self.build(arguments, workspace)
