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

from pydantic import BaseModel, ConfigDict, JsonValue

from holdfast.domain.approvals.approval import Confirmation, QuestionAnswer, ToolNotes
from holdfast.domain.base import Data
from holdfast.domain.content import Part, Result
from holdfast.domain.context import Context, Dependence
from holdfast.util.json_values import digest_canonical


class Effect(StrEnum):
    """What repeating a call would do (S31)."""

    READ = "read"
    """Changes nothing."""
    IDEMPOTENT = "idempotent"
    """Changes something, and the same again when repeated."""
    ONCE = "once"
    """Must not be repeated."""


class Interrupt(StrEnum):
    """What a user's new message does to a running call (S18)."""

    CANCEL = "cancel"
    """It is stopped."""
    BLOCK = "block"
    """It finishes first."""


AbortsSiblings = bool | Literal["streaming"]


class Traits(Data):
    """How a tool's calls are to be treated. Not part of what a person approves."""

    interrupt: Interrupt = Interrupt.BLOCK
    aborts_siblings: AbortsSiblings = False
    """Its error cancels the calls beside it (S15): always, or where calls begin while the model still writes."""
    live_output: bool = False
    """It writes while it runs."""
    markdown: bool = False
    """What it gives is markdown."""
    task_queue: str | None = None
    """Where its calls must run; on any worker of the turn when left out."""
    on_host: bool = False
    """Its calls live on the host that validated them: they run there, and are found there again."""
    asks: bool = False
    """It may ask a person in the middle of its run."""
    open_world: bool = False
    """It speaks with the world outside: what it gives back is not to be trusted, and what it is given leaves."""
    depends_on: tuple[Dependence, ...] = ()
    """What of its turn's context its calls go by (S47)."""
    delegates: bool = False
    """Its calls are turns of their own, with the arguments of `delegate`."""
    destructive: bool = False
    """It destroys something that cannot be had again: mode `yolo` asks about its calls."""


_DEFINITION_FIELDS = {"name", "description", "parameters", "effect", "server"}
"""What an approval is about: a change of any of these is asked about again."""


class Declaration(Data):
    """What a tool says of itself, as data: for a model, for the history, for the digest."""

    name: str
    description: str
    parameters: dict[str, JsonValue]
    """JSON schema."""
    effect: Effect
    server: str | None = None
    display_name: str | None = None
    traits: Traits = Traits()
    origin: str | None = None
    """Of a server's tool: a digest over all that the server says of it."""
    own_name: str | None = None
    """Of a server's tool: what the server calls it."""

    @property
    def definition(self) -> dict[str, JsonValue]:
        """What an approval of its calls is about."""
        said = self.model_dump(mode="json", include=_DEFINITION_FIELDS)
        return said if self.origin is None else {**said, "origin": self.origin}

    @property
    def digest(self) -> str:
        """Changes whenever the definition does, and not when this class learns a new field."""
        return digest_canonical(self.definition)

    def build_ref(self) -> ToolRef:
        """What a call remembers of its tool."""
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
        """What a model is told."""
        return {"name": self.name, "description": self.description, "parameters": self.parameters}


class ToolRef(Data):
    """What a call remembers of its tool: enough to run it by, without its schema."""

    name: str
    effect: Effect
    server: str | None = None
    definition: str
    """Digest of the declaration."""
    display_name: str | None = None
    traits: Traits = Traits()
    own_name: str | None = None
    """Of a server's tool: what the server calls it."""


class Run(Protocol):
    """What a running tool is given."""

    @property
    def call_id(self) -> str:
        """The engine's id of this call; unique within its turn."""

    @property
    def key(self) -> str:
        """Unique to this call of this turn, the same for every attempt."""

    @property
    def effect_key(self) -> str:
        """For services that take an idempotency key: the same for every attempt at this effect.

        It is another one when the arguments are, and when a person says that the call is to run again.
        """

    @property
    def is_unasked(self) -> bool:
        """Was nobody asked about this very call? A rule, a mode or a standing answer allowed it."""

    @property
    def is_handing_over(self) -> bool:
        """Does this worker end, so that what goes on by itself is left for the next one?"""

    @property
    def workspace(self) -> Path:
        """The folder this worker's tools work in."""

    @property
    def state(self) -> JsonValue:
        """What an earlier run left with `NeedsAnswer`, to go on from; None for the first."""

    @property
    def answer(self) -> QuestionAnswer | None:
        """What a person answered to that."""

    async def ask(self, question: Confirmation) -> QuestionAnswer:
        """Ask a person, and wait: the tool's clock stands still. For tools that declare `asks`.

        When this process dies meanwhile the question dies with it. A tool that can go on from a state of its own raises
        `NeedsAnswer` instead.
        """

    def write(self, text: str) -> None:
        """Add to the live output. Cheap; viewers see the tail of it within a second."""

    def report_process(self, pid: int) -> None:
        """Tell viewers which process runs."""


class ToolFailure(Exception):
    """Raise in `execute` to end a call as an `error` with a type and words of your choosing.

    `parts` is what the tool had put out until then.
    """

    def __init__(self, type: str, message: str, parts: tuple[Part, ...] = ()) -> None:
        super().__init__(message)
        self.type = type
        self.parts = parts


class OutcomeUnknown(Exception):
    """Raise in `execute` when nobody can know whether the call took effect. A person is asked what to do.

    In the place of a cancellation it says the same of a call that was stopped: nobody is asked then.
    """

    def __init__(self, message: str, parts: tuple[Part, ...] = ()) -> None:
        super().__init__(message)
        self.parts = parts


class NeedsAnswer(Exception):
    """Raise in `execute` when a person has to answer before the tool goes on, from `state`, in another `execute`.

    The wait outlives every process. What the tool has done until then is not repeated: it is in the state.
    """

    def __init__(self, question: Confirmation, state: JsonValue = None) -> None:
        super().__init__(question.question or question.title)
        self.question = question
        self.state = state


class StrictParameters(BaseModel):
    """A base for `Parameters` in which an unknown argument is an error, so that a misspelt one is not dropped."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class Retries:
    """Which failures of a tool pass by themselves, and how often it is tried again.

    Only for tools that read or may be repeated: a `once` tool with retries is refused. All attempts share the tool's
    `timeout_seconds`; each goes on with the same live output.
    """

    on: tuple[type[Exception] | str, ...]
    """Exception classes, and types of ToolFailure by name."""
    attempts: int = 3
    """In all, 2 to 10."""
    wait_seconds: float = 1.0
    """Before the second attempt, 0 to 60; twice as long before each further one, and at most a minute."""

    def is_retryable(self, error: BaseException) -> bool:
        """Is this a failure after which the tool is tried again?"""
        kinds = tuple(kind for kind in self.on if isinstance(kind, type))
        return isinstance(error, kinds) or (isinstance(error, ToolFailure) and error.type in self.on)


class DecisionNotice(Data):
    """What a tool is told of the decision that lets its call run."""

    action: str
    """`proceed_once`, `proceed_always` …: an outcome by its name."""
    by: str | None = None
    note: str | None = None
    changed: bool = False
    """A person has changed the arguments: the invocation has them as they will run."""


class Invocation(ABC):
    """A tool bound to validated arguments."""

    @abstractmethod
    def describe(self) -> str:
        """One line for a person: what this call would do."""

    def is_concurrency_safe(self) -> bool:
        """May this call run beside others that say the same?"""
        return False

    def list_dependences(self) -> tuple[Dependence, ...] | None:
        """What of its turn's context this very call goes by; None for all that its tool says."""
        return None

    def digest_before(self) -> Mapping[str, str]:
        """The files this call would change, by their path in the workspace, each with its digest as it is now.

        What a person approves is about these: when one has changed since, they are asked again, and when one is not
        as the turn last saw it, the call is refused.
        """
        return {}

    def digest_after(self) -> Mapping[str, str]:
        """The files of `basis` as this call would leave them. When they are so already, it has run."""
        return {}

    @property
    def is_resumable(self) -> bool:
        """Does `execute` find again what an earlier attempt of it began, and go on with that?"""
        return False

    async def verify(self, run: Run) -> Result | bool | None:
        """After a crash: did an earlier attempt take effect? Its result, True or False; None when that is not known."""
        return None

    async def stop(self, run: Run) -> bool:
        """Stop what an earlier attempt began and what goes on by itself, and begin nothing. Was there anything?"""
        return False

    async def clean_up(self, run: Run) -> None:
        """Its end is recorded: what was kept to find it again is not needed any more."""
        return

    def describe_tool_change(self) -> str | None:
        """How its tool is not what was approved before, in a sentence: then a person looks, whatever a rule says."""
        return None

    def build_confirmation(self) -> Confirmation | None:
        """What a person sees of it when a rule or a hook has it asked about, and not the tool; None for its title."""
        return None

    async def should_confirm(self) -> Confirmation | None:
        """What a person is to be asked before this runs; None when it may simply run."""
        return None

    async def on_decision(self, decision: DecisionNotice) -> None:
        """A person let this call run: called in the executing activity, before `execute`.

        Once for each attempt, so it must be repeatable. An exception ends the call with that error, and nothing runs.
        """
        return

    @abstractmethod
    async def execute(self, run: Run) -> Result:
        """Run the call and return its result.

        Raise ToolFailure to fail with a type and a message, NeedsAnswer to ask a person and go on in another `execute`,
        OutcomeUnknown when nobody can know whether the call took effect. Any other exception ends the call as an error
        with its type and message. A stop arrives as asyncio.CancelledError: end what was started, then raise it again.
        """


class Tool(ABC):
    """A tool: its declaration, and how it becomes an invocation.

    `Parameters` is a pydantic model, or a JSON schema of an object; `build` then gets an instance of the model, or the
    arguments as a dict. Either way they have been checked.
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
    """Do `build` and what the invocation says of itself before it runs take milliseconds? Then calls of this tool are
    validated in the workflow task itself, which costs less; else by an activity, so that the turn hears people
    meanwhile."""
    retries: Retries | None = None
    """Which of its failures pass by themselves. None: every failure ends the call."""
    timeout_seconds: float = 600
    heartbeat_seconds: float = 10
    """How long its worker may be silent before the call counts as lost."""
    Parameters: type[BaseModel] | Mapping[str, JsonValue]

    def build_declaration(self) -> Declaration:
        """What this tool says of itself."""
        given = self.Parameters
        schema = given.model_json_schema() if isinstance(given, type) else dict(given)
        return Declaration(
            name=self.name,
            description=self.description,
            parameters=schema,
            effect=self.effect,
            display_name=self.display_name,
            traits=Traits(
                interrupt=self.interrupt,
                aborts_siblings=self.aborts_siblings,
                live_output=self.live_output,
                markdown=self.markdown,
                task_queue=self.task_queue,
                on_host=self.on_host,
                asks=self.asks,
                open_world=self.open_world,
                depends_on=tuple(self.depends_on),
                delegates=self.delegates,
                destructive=self.destructive,
            ),
        )

    def build_notes(self) -> ToolNotes | None:
        """What people should know of it beside its declaration, if it is somebody else's."""
        return None

    @abstractmethod
    def build(self, arguments: Any, workspace: Path) -> Invocation:
        """Bind checked arguments. Raise ValueError for what the schema cannot say."""

    def build_in(self, arguments: Any, workspace: Path, context: Context) -> Invocation:
        """The same within the context of a turn: for a tool that says what of it its calls depend on."""
        return self.build(arguments, workspace)
