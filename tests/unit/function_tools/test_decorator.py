"""`@tool`: what a function's signature and docstring become, and that whatever it does is a result or an error."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from holdfast.activities.execution.run_tool import contain_exits
from holdfast.activities.gate.gate import Gate
from holdfast.activities.process.output_store import OutputStore
from holdfast.activities.registry.arguments import InvalidArguments
from holdfast.activities.registry.registry import Registry
from holdfast.domain.approvals.approval import Confirmation
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.tool import Effect, Interrupt, Run, ToolFailure
from holdfast.domain.calls.verdicts import Allow, Ask, Reject
from holdfast.domain.content import BlobPart, DataPart, Part, Result, TextPart
from holdfast.errors import BadInput
from holdfast.function_tools.decorator import FunctionTool, build_result, run_in_thread, tool
from holdfast.testing import FakeRun
from tests.support.tools import build

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTypes

PATIENCE = 10.0


async def call(made: FunctionTool, **arguments: Any) -> Result:
    async with asyncio.timeout(PATIENCE):
        return await build(made, Path(), **arguments).execute(FakeRun())


async def text(made: FunctionTool, **arguments: Any) -> str:
    [part] = (await call(made, **arguments)).parts
    return part.text


def properties(made: FunctionTool) -> dict[str, Any]:
    found = made.build_declaration().parameters["properties"]
    assert isinstance(found, dict)
    return found


class Point(BaseModel):
    x: int
    y: int = 0


@dataclass
class Box:
    name: str
    made: date


class Colour(StrEnum):
    RED = "red"


# What a signature becomes


def test_names_types_and_defaults_become_the_schema() -> None:
    @tool
    def search(text: str, limit: int = 3, deep: bool = False) -> str:
        """Search."""
        return ""

    assert search.name == "search"
    assert search.description == "Search."
    parameters = search.build_declaration().parameters
    assert parameters["type"] == "object"
    assert parameters["required"] == ["text"]
    assert parameters["additionalProperties"] is False
    assert properties(search)["text"]["type"] == "string"
    assert (properties(search)["limit"]["type"], properties(search)["limit"]["default"]) == ("integer", 3)


async def test_decorated_function_can_still_be_called() -> None:
    @tool
    def double(number: int) -> int:
        return number * 2

    assert double(4) == double(number=4) == 8


async def test_left_out_arguments_have_the_defaults_of_the_function() -> None:
    @tool
    def gather(first: int, rest: list[int] = [], at: Path = Path("here")) -> str:  # noqa: B006 - the point of it
        rest.append(first)
        return f"{rest} {at}"

    assert await text(gather, first=1) == await text(gather, first=1) == "[1] here"


async def test_optional_literal_annotated_and_nested_parameters_arrive_as_their_types() -> None:
    @tool
    def draw(
        at: Point,
        way: Literal["up", "down"],
        size: Annotated[int, Field(ge=1)],
        colour: Colour = Colour.RED,
        note: Optional[str] = None,  # noqa: UP045 - as older code writes it
        others: list[Point] | None = None,
    ) -> str:
        assert isinstance(at, Point)
        assert isinstance(colour, Colour)
        return f"{at.x},{at.y} {way} {size} {colour} {note} {others and others[0].x}"

    assert await text(draw, at={"x": 1}, way="up", size="2", others=[{"x": 7}]) == "1,0 up 2 red None 7"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "at: is required"),
        ({"at": {}}, "at.x: is required"),
        ({"at": {"x": 1}, "size": 0}, "size: must be greater than or equal to 1"),
        ({"at": {"x": "one"}}, 'at.x: must be a whole number, not "one"'),
        ({"at": {"x": 1}, "sze": 3}, 'sze: is not a parameter. Did you mean "size"?'),
        ({"given_at": {"x": 1}}, "given_at: is not a parameter"),
    ],
)
async def test_S6_arguments_are_checked_against_the_signature(arguments: dict[str, Any], words: str) -> None:
    @tool
    def draw(at: Point, size: Annotated[int, Field(ge=1)] = 1) -> str:
        return ""

    with pytest.raises(InvalidArguments) as error:
        build(draw, Path(), **arguments)
    assert words in str(error.value)


MODELS_OWN = ["copy", "schema", "json", "model_config", "model_fields", "dict", "construct", "validate"]
ENGINES_OWN = ["name", "function", "run", "callable", "arguments", "given_copy"]
AWKWARD = [*MODELS_OWN, *ENGINES_OWN, "self", "cls", "_private", "__dunder__"]


@pytest.mark.parametrize("name", AWKWARD)
@pytest.mark.parametrize("kind", ["async def", "def"])
async def test_parameter_may_have_any_name(name: str, kind: str) -> None:
    space: dict[str, Any] = {}
    exec(f"{kind} echo({name}: str = 'left out') -> str: return {name}", space)
    made = tool(space["echo"])
    assert list(properties(made)) == [name]
    assert await text(made, **{name: "given"}) == "given"
    assert await text(made) == "left out"


async def test_parameters_that_nearly_share_a_name_are_not_mixed_up() -> None:
    @tool
    def pair(x: int = 1, given_x: int = 2, given_given_x: int = 3) -> str:
        return f"{x} {given_x} {given_given_x}"

    assert await text(pair, given_x=5) == "1 5 3"
    assert await text(pair, given_given_x=5) == "1 2 5"


def test_options_are_the_traits_of_the_tool() -> None:
    @tool(
        name="other",
        display_name="Other",
        description="Does.",
        effect=Effect.IDEMPOTENT,
        interrupt=Interrupt.CANCEL,
        aborts_siblings=True,
        live_output=True,
        markdown=True,
        task_queue="gpu",
        on_host=True,
        asks=True,
        open_world=True,
        destructive=True,
        timeout_seconds=5,
        heartbeat_seconds=2,
    )
    def named() -> None:
        """Not this."""

    declaration = named.build_declaration()
    assert (declaration.name, declaration.display_name, declaration.description) == ("other", "Other", "Does.")
    assert declaration.effect is Effect.IDEMPOTENT
    assert declaration.traits.model_dump() == {
        "interrupt": "cancel",
        "aborts_siblings": True,
        "live_output": True,
        "markdown": True,
        "task_queue": "gpu",
        "on_host": True,
        "asks": True,
        "open_world": True,
        "destructive": True,
        "depends_on": (),
        "delegates": False,
    }
    assert (named.timeout_seconds, named.heartbeat_seconds) == (5, 2)


def test_S20_a_tool_whose_confirm_awaits_something_does_not_promise_a_quick_check() -> None:
    async def look_up(text: str) -> bool:
        return bool(text)

    assert tool(plain).checks_quickly
    assert tool(confirm=lambda text: bool(text))(plain).checks_quickly
    assert not tool(confirm=look_up)(plain).checks_quickly
    assert tool(confirm=look_up, checks_quickly=True)(plain).checks_quickly
    assert not tool(checks_quickly=False)(plain).checks_quickly


def plain(text: str) -> str:
    return text


@pytest.mark.parametrize("option", ["timeout_second", "declaration", "Parameters", "build"])
def test_option_that_does_not_exist_is_refused(option: str) -> None:
    options: dict[str, Any] = {option: 5}
    with pytest.raises(BadInput, match=option):
        FunctionTool(plain, **options)


def test_misspelt_option_is_refused_with_a_suggestion() -> None:
    with pytest.raises(BadInput, match='Did you mean "timeout_seconds"'):
        FunctionTool(plain, timeout_second=5)  # type: ignore[call-arg]


# What cannot be a tool


def positional(text: str, /) -> None: ...
def many(*texts: str) -> None: ...
def named(**texts: str) -> None: ...
def untyped(text) -> None: ...  # type: ignore[no-untyped-def]
def unknown(text: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def unfit(text: threading.Lock) -> None: ...
def checked_only(text: OnlyForTypes) -> None: ...


def yields(text: str) -> Iterator[str]:
    yield text


async def yields_later(text: str) -> AsyncIterator[str]:
    yield text


class Caller:
    def __call__(self, text: str) -> str:
        return text


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (positional, "'text' is not given by name"),
        (many, "'texts' is not given by name"),
        (named, "'texts' is not given by name"),
        (untyped, "'text' has no type"),
        (unknown, "'unknown' cannot be read: name 'Nowhere' is not defined"),
        (checked_only, "'OnlyForTypes' is not defined"),
        (unfit, "no schema can be made for 'unfit'"),
        (yields, "it yields"),
        (yields_later, "it yields"),
        (Caller(), "it is not a function"),
        (functools.partial(plain, "x"), "it is not a function"),
        ("plain", "it is not a function"),
        (7, "it is not a function"),
        (len, "'obj' is not given by name"),
        (dict.get, "cannot be a tool"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_with_the_reason(function: Any, words: str) -> None:
    with pytest.raises(BadInput) as error:
        tool(function)
    assert words in str(error.value)


def test_concurrency_that_would_have_to_be_awaited_is_refused() -> None:
    async def safe(text: str) -> bool:
        return False

    with pytest.raises(BadInput, match="concurrency_safe is async"):
        tool(concurrency_safe=safe)(plain)  # type: ignore[arg-type]


async def test_type_of_the_answer_need_not_be_known() -> None:
    @tool
    def answer(number: int) -> OnlyForTypes:
        return number  # type: ignore[return-value]

    assert await text(answer, number=3) == "3"


def test_anonymous_function_needs_a_name() -> None:
    with pytest.raises(BadInput, match="<lambda>"):
        Registry([tool(lambda: None)])
    assert Registry([tool(name="given")(lambda: None)]).get("given")


async def test_bound_method_is_a_tool_without_its_self() -> None:
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def add(self, by: int) -> int:
            self.count += by
            return self.count

    counter = Counter()
    assert await text(tool(counter.add), by=3) == "3"
    assert counter.count == 3


async def test_decorated_function_keeps_its_signature() -> None:
    def twice(function: Callable[..., str]) -> Callable[..., str]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> str:
            return function(*args, **kwargs) * 2

        return wrapper

    @tool
    @twice
    def say(text: str) -> str:
        return text

    assert await text(say, text="x") == "xx"


async def test_function_that_gives_something_to_await_is_awaited() -> None:
    async def later(text: str) -> str:
        return text

    @tool
    def say(text: str) -> Awaitable[str]:
        return later(text)

    assert await text(say, text="x") == "x"


# Docstrings

ABOUT = "Do it.\n\nMore.\n\n"
STYLES = {
    "google": "Args:\n    a (int): The a.\n        Goes on.\n    b: The b: a colon.\n\nReturns:\n    X.",
    "numpy": "Parameters\n----------\na : int\n    The a.\n    Goes on.\nb : str\n    The b: a colon.\n",
    "rest": ":param a: The a.\n    Goes on.\n:param str b: The b: a colon.\n:returns: X.",
}


@pytest.mark.parametrize("style", STYLES)
def test_docstring_describes_the_tool_and_its_parameters(style: str) -> None:
    def do(a: int, b: str = "") -> None: ...

    do.__doc__ = ABOUT + STYLES[style]
    made = tool(do)
    assert made.description == "Do it.\n\nMore."
    assert properties(made)["a"]["description"].split() == ["The", "a.", "Goes", "on."]
    assert properties(made)["b"]["description"] == "The b: a colon."


@given(st.text(alphabet=" \n\t:-@*`abArgsPmet", max_size=80) | st.text(max_size=40))
@example(": :")
def test_no_docstring_breaks_a_tool(docstring: str) -> None:
    def do(a: int) -> None: ...

    do.__doc__ = docstring
    made = tool(do)
    assert made.description
    assert list(properties(made)) == ["a"]


def test_tool_without_a_docstring_is_described_by_its_name() -> None:
    assert tool(plain).description == "plain"
    assert "description" not in properties(tool(plain))["text"]


def test_description_at_the_type_is_kept() -> None:
    @tool
    def do(a: Annotated[int, Field(description="At the type")], b: Annotated[int, Field(description="Same")]) -> None:
        """Do.

        Args:
            b: In the docstring
        """

    assert properties(do)["a"]["description"] == "At the type"
    assert properties(do)["b"]["description"] == "Same"


# The run


@pytest.mark.parametrize("kind", ["async def", "def"])
@pytest.mark.parametrize("hint", ["Run", "Run | None", "Optional[Run]", "Annotated[Run, 'x']", "'Run'"])
async def test_parameter_for_the_run_is_given_the_run_and_hidden_from_the_model(kind: str, hint: str) -> None:
    space: dict[str, Any] = {"Run": Run, "Optional": Optional, "Annotated": Annotated}
    exec(f"{kind} say(text: str, run: {hint}) -> str: run.write(text); return run.key", space)
    made = tool(space["say"])
    assert list(properties(made)) == ["text"]
    run = FakeRun(key="turn/b7c7")
    result = await build(made, Path(), text="live").execute(run)
    assert (result, run.output) == (Result.from_text("turn/b7c7"), "live")
    with pytest.raises(InvalidArguments, match="run: is not a parameter"):
        build(made, Path(), text="x", run="mine")


async def test_run_may_be_asked_for_twice() -> None:
    @tool
    def same(one: Run, two: Run) -> bool:
        return one is two

    assert (await call(same)).parts == (DataPart(value=True),)


# Asking first


async def confirmation(made: FunctionTool, **arguments: Any) -> Confirmation | None:
    return await build(made, Path(), **arguments).should_confirm()


def fail(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize(
    ("options", "title"),
    [
        ({}, "plain(text='x')"),
        ({"effect": Effect.IDEMPOTENT}, "plain(text='x')"),
        ({"effect": Effect.READ}, None),
        ({"effect": Effect.READ, "confirm": True}, "plain(text='x')"),
        ({"confirm": False}, None),
        ({"confirm": "Really?"}, "Really?"),
        ({"confirm": lambda text: f"Say {text}?"}, "Say x?"),
        ({"confirm": lambda text: text == "x"}, "plain(text='x')"),
        ({"confirm": lambda text: text != "x"}, None),
        ({"confirm": lambda text: None}, None),
        ({"confirm": lambda text: Confirmation(kind="exec", title=text)}, "x"),
        ({"confirm": lambda text: {"some": "thing"}}, "plain(text='x')"),
        ({"display_name": "Plain", "confirm": True}, "Plain(text='x')"),
    ],
)
async def test_S20_call_asks_unless_it_merely_reads_or_says_otherwise(options: Any, title: str | None) -> None:
    asked = await confirmation(FunctionTool(plain, **options), text="x")
    assert (asked and asked.title) == title


async def test_S20_question_may_have_to_be_awaited() -> None:
    async def never(text: str) -> bool:
        return False

    async def always(text: str) -> str:
        return f"Say {text}?"

    assert await confirmation(tool(confirm=never)(plain), text="x") is None
    asked = await confirmation(tool(confirm=always)(plain), text="x")
    assert asked == Confirmation(kind="info", title="Say x?")


async def judged(made: FunctionTool, **arguments: Any) -> Allow | Ask | Reject | Any:
    verdict, _, _ = await Gate(Registry([made]), Path()).judge(CallRequest(tool=made.name, arguments=arguments))
    return verdict


@pytest.mark.parametrize(
    "error", [RuntimeError("moon"), KeyError("moon"), SystemExit("moon"), KeyboardInterrupt("moon")]
)
async def test_S7_question_that_breaks_rejects_its_call(error: BaseException) -> None:
    verdict = await judged(FunctionTool(plain, confirm=lambda text: fail(error)), text="x")
    assert isinstance(verdict, Reject)
    assert "moon" in verdict.error.message


@pytest.mark.parametrize(
    ("safe", "answer"),
    [
        (True, True),
        (False, False),
        (None, False),
        (lambda text: text == "x", True),
        (lambda text: text != "x", False),
        (lambda text: None, False),
        (lambda text: "no", False),
        (lambda text: fail(RuntimeError("moon")), False),
        (lambda: True, False),
    ],
)
async def test_S10_call_is_safe_only_when_it_clearly_says_so(safe: Any, answer: bool) -> None:
    verdict = await judged(FunctionTool(plain, concurrency_safe=safe, confirm=False), text="x")
    assert isinstance(verdict, Allow)
    assert verdict.bound.concurrency_safe is answer


def test_S10_function_that_merely_reads_is_safe() -> None:
    assert build(tool(effect=Effect.READ)(plain), Path(), text="x").is_concurrency_safe()


def test_long_arguments_are_cut_in_the_title() -> None:
    assert len(build(tool(plain), Path(), text="x" * 100_000).describe()) < 200


# What comes back


class Closed:
    def __str__(self) -> str:
        raise RuntimeError("not even this")

    __repr__ = __str__


PNG = BlobPart.from_bytes(b"\x89PNG", "image/png")
ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
DEEP: list[Any] = []
for _ in range(sys.getrecursionlimit() * 2):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("made", "parts"),
    [
        ("text", (TextPart(text="text"),)),
        ("", (TextPart(text=""),)),
        ("half \ud800", (TextPart(text="half ?"),)),
        (None, (TextPart(text="(done)"),)),
        ({"a": [1, None]}, (DataPart(value={"a": [1, None]}),)),
        ({1: 2}, (DataPart(value={"1": 2}),)),
        ({}, (DataPart(value={}),)),
        ([], (DataPart(value=[]),)),
        ((1, "b"), (DataPart(value=[1, "b"]),)),
        ({7}, (DataPart(value=[7]),)),
        (0, (DataPart(value=0),)),
        (True, (DataPart(value=True),)),
        (1.5, (DataPart(value=1.5),)),
        (float("nan"), (TextPart(text="nan"),)),
        (float("-inf"), (TextPart(text="-inf"),)),
        (10**5_000, (TextPart(text="(a int that cannot be shown)"),)),
        (b"\xff\0", (BlobPart.from_bytes(b"\xff\0", "application/octet-stream"),)),
        (b"text", (BlobPart.from_bytes(b"text", "application/octet-stream"),)),
        (bytearray(b"x"), (BlobPart.from_bytes(b"x", "application/octet-stream"),)),
        (Box("b", date(2026, 1, 2)), (DataPart(value={"name": "b", "made": "2026-01-02"}),)),
        (Box("b", "no date"), (DataPart(value={"name": "b", "made": "no date"}),)),  # type: ignore[arg-type]
        (Point(x=1), (DataPart(value={"x": 1, "y": 0}),)),
        ([Point(x=1)], (DataPart(value=[{"x": 1, "y": 0}]),)),
        (datetime(2026, 1, 2, 3), (DataPart(value="2026-01-02T03:00:00"),)),
        (timedelta(seconds=90), (DataPart(value="PT1M30S"),)),
        (Path("/a"), (DataPart(value="/a"),)),
        (Colour.RED, (TextPart(text="red"),)),
        (PNG, (PNG,)),
        (TextPart(text="a"), (TextPart(text="a"),)),
        ([TextPart(text="a"), PNG, DataPart(value=1)], (TextPart(text="a"), PNG, DataPart(value=1))),
        ((PNG,), (PNG,)),
        (range(3), (TextPart(text="range(0, 3)"),)),
        (ValueError("returned, not raised"), (TextPart(text="returned, not raised"),)),
        (Closed(), (TextPart(text="(a Closed that cannot be shown)"),)),
        ({"deep": Closed()}, (TextPart(text="(a dict that cannot be shown)"),)),
        (ENDLESS, (TextPart(text="[[...]]"),)),
        (DEEP, (TextPart(text="(a list that cannot be shown)"),)),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_S34_whatever_a_function_gives_back_is_a_result(made: object, parts: tuple[Part, ...]) -> None:
    result = build_result(made)
    assert result.parts == parts
    assert result.model_dump_json()


def test_S34_a_result_is_left_as_it_is() -> None:
    given = Result.from_text("for the model", display="for a person")
    assert build_result(given) is given


def test_S34_object_of_any_class_is_shown_as_text() -> None:
    assert build_result(object()).parts[0].text.startswith("<object object at")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON.filter(lambda value: value is not None and not isinstance(value, str)))
def test_S34_json_comes_back_as_data(value: Any) -> None:
    assert build_result(value).parts == (DataPart(value=value),)


# How a function runs, and how it ends


async def test_function_runs_beside_the_loop_and_sees_its_context() -> None:
    mark = contextvars.ContextVar("mark", default="none")
    mark.set("mine")

    @tool
    def where() -> str:
        return f"{mark.get()} {threading.current_thread() is threading.main_thread()}"

    assert await text(where) == "mine False"


async def test_async_function_runs_on_the_loop() -> None:
    @tool
    async def where() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert (await call(where)).parts == (DataPart(value=True),)


async def test_hundred_functions_that_wait_for_each_other_all_run() -> None:
    """A pool of threads would have too few: each call has its own."""
    together = threading.Barrier(100, timeout=PATIENCE)

    @tool
    def meet() -> str:
        together.wait()
        return "met"

    assert await asyncio.gather(*(text(meet) for _ in range(100))) == ["met"] * 100


LEAVING = [SystemExit(3), KeyboardInterrupt(), GeneratorExit()]
FAILING = [
    RuntimeError("moon"),
    KeyError("moon"),
    OSError(5, "moon"),
    StopAsyncIteration("moon"),
    RecursionError("moon"),
]


@pytest.mark.parametrize("error", FAILING, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("kind", ["async def", "def"])
async def test_S7_exception_of_a_function_is_its_own(error: Exception, kind: str) -> None:
    space: dict[str, Any] = {"fail": fail, "error": error}
    exec(f"{kind} breaks(): fail(error)", space)
    with pytest.raises(type(error), match="moon"):
        await call(tool(space["breaks"]))


@pytest.mark.parametrize("kind", ["async def", "def"])
async def test_S7_stop_iteration_is_an_error_and_no_end(kind: str) -> None:
    space: dict[str, Any] = {"fail": fail}
    exec(f"{kind} breaks(): fail(StopIteration('moon'))", space)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await call(tool(space["breaks"]))


@pytest.mark.parametrize("error", LEAVING, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("kind", ["async def", "def"])
async def test_S7_function_that_leaves_the_process_fails_its_call(error: BaseException, kind: str) -> None:
    space: dict[str, Any] = {"fail": fail, "error": error}
    exec(f"{kind} leaves(): fail(error)", space)
    with pytest.raises(ToolFailure) as failure:
        await contain_exits(call(tool(space["leaves"])))
    assert failure.value.type == type(error).__name__


async def test_S7_stop_waits_for_a_function_and_keeps_its_result() -> None:
    began, release = threading.Event(), threading.Event()

    @tool
    def slow() -> str:
        began.set()
        assert release.wait(PATIENCE)
        return "done all the same"

    task = asyncio.create_task(call(slow))
    assert await asyncio.to_thread(began.wait, PATIENCE)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    release.set()
    async with asyncio.timeout(PATIENCE):
        assert await task == Result.from_text("done all the same")


async def test_S7_stop_waits_for_a_function_and_keeps_its_error() -> None:
    began, release = threading.Event(), threading.Event()

    def slow() -> str:
        began.set()
        assert release.wait(PATIENCE)
        raise RuntimeError("moon")

    task = asyncio.create_task(run_in_thread(slow, {}))
    assert await asyncio.to_thread(began.wait, PATIENCE)
    task.cancel()
    release.set()
    with pytest.raises(RuntimeError, match="moon"):
        async with asyncio.timeout(PATIENCE):
            await task


async def test_S16_async_function_is_told_of_a_stop() -> None:
    began = asyncio.Event()

    @tool
    async def waits() -> str:
        began.set()
        await asyncio.Event().wait()
        return "never"

    task = asyncio.create_task(call(waits))
    async with asyncio.timeout(PATIENCE):
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_S33_bytes_of_a_function_are_kept_in_a_file(tmp_path: Path) -> None:
    @tool
    def picture() -> bytes:
        return b"\x89PNG" + b"\0" * 100_000

    bounded = OutputStore(tmp_path / "outputs").bound_result(await call(picture))
    [part] = bounded.parts
    assert isinstance(part, BlobPart)
    assert part.whole
    [file] = (tmp_path / "outputs").iterdir()
    assert (part.whole, file.stat().st_size) == (str(file), 100_004)
