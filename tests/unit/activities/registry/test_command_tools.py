"""Tools of a command: what it may print, how its calls run, and that both end, with everything they started."""

from __future__ import annotations

import asyncio
import json
import sys
import textwrap
import time
import tracemalloc
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.activities.process.output_store import OutputStore
from holdfast.activities.registry.command_tools import (
    DiscoveredDeclaration,
    DiscoveredTool,
    discover_tools,
    read_declarations,
)
from holdfast.activities.registry.registry import Registry
from holdfast.config.provider_keys import OUR_PREFIXES
from holdfast.config.schema import DiscoverySettings
from holdfast.domain.calls.tool import Effect, Invocation, Tool, ToolFailure
from holdfast.domain.content import Result, TextPart
from holdfast.errors import BadInput
from holdfast.testing import FakeRun
from tests.support.marks import PATIENCE, alive, marked, until

T = TypeVar("T")


def declarations(text: str) -> list[DiscoveredDeclaration]:
    """The declarations of a text; BadInput with the first that is none."""
    return [_usable(item) for item in read_declarations(text)]


async def discovered(settings: DiscoverySettings, outputs: OutputStore) -> list[Tool]:
    """The tools of a source; BadInput with the first that is none."""
    return [_usable(item) for item in await discover_tools(settings, outputs)]


def _usable(item: T | BadInput) -> T:
    if isinstance(item, BadInput):
        raise item
    return item


def test_S38_one_bad_declaration_costs_no_other() -> None:
    good, bad, also = read_declarations('[{"name": "a"}, {"title": "no name"}, {"name": "b"}]')
    assert isinstance(good, DiscoveredDeclaration)
    assert isinstance(also, DiscoveredDeclaration)
    assert "declaration 2 cannot be used: name: Field required" in str(bad)


class Watched(FakeRun):
    """A run of its own: processes are found by its key."""

    def __init__(self) -> None:
        super().__init__(key=f"turn-{uuid4()}/b1c1")


@pytest.fixture
def run() -> Watched:
    return Watched()


@pytest.fixture
def outputs(tmp_path: Path) -> OutputStore:
    return OutputStore(tmp_path / "outputs")


def python(folder: Path, code: str) -> list[str]:
    """A command that runs this code."""
    file = folder / f"command-{uuid4().hex}.py"
    file.write_text(textwrap.dedent(code))
    return [sys.executable, str(file)]


def configured(folder: Path, command: list[str], **more: Any) -> DiscoverySettings:
    return DiscoverySettings.model_validate(
        {"name": "mine", "discovery_command": command, "call_command": ["true"], "folder": folder, **more}
    )


async def refusal(settings: DiscoverySettings, outputs: OutputStore) -> str:
    with pytest.raises(BadInput) as error:
        async with asyncio.timeout(PATIENCE):
            await discovered(settings, outputs)
    return str(error.value)


# What may be declared

ONE = {"name": "one", "description": "The first.", "parameters": {"type": "object", "properties": {"a": {}}}}


@pytest.mark.parametrize(
    "printed",
    [
        [ONE],
        ONE,
        {"functionDeclarations": [ONE]},
        {"function_declarations": [ONE]},
        [{"functionDeclarations": [ONE]}],
        [{"function_declarations": [ONE]}],
        {"tools": [ONE]},
        {"tools": [{"functionDeclarations": [ONE]}]},
        {"tools": [{"type": "function", "function": ONE}]},
        [{"type": "function", "function": ONE}],
        [{"type": "function", **ONE}],
        [{**ONE, "parameters": None, "inputSchema": ONE["parameters"]}],
        *(
            [{"name": "one", "description": "The first.", key: ONE["parameters"]}]
            for key in ("parametersJsonSchema", "parameters_json_schema", "inputSchema", "input_schema")
        ),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_S38_declarations_may_be_wrapped_as_is_usual(printed: Any) -> None:
    [declared] = declarations(json.dumps(printed))
    assert (declared.name, declared.description, declared.parameters) == tuple(ONE.values())


def test_S38_declarations_keep_their_order_whatever_each_is_wrapped_in() -> None:
    wrapped = [{"name": "a"}, {"functionDeclarations": [{"name": "b"}, {"name": "c"}]}, {"function": {"name": "d"}}]
    assert [declared.name for declared in declarations(json.dumps(wrapped))] == ["a", "b", "c", "d"]


def test_S38_no_declarations_are_no_tools() -> None:
    assert declarations("[]") == declarations('{"tools": []}') == []


@pytest.mark.parametrize("left_out", [{}, {"description": None, "parameters": None, "effect": None}])
def test_S38_what_is_left_out_has_a_default(left_out: dict[str, Any], tmp_path: Path, outputs: OutputStore) -> None:
    [declared] = declarations(json.dumps([{"name": "one", **left_out}]))
    made = DiscoveredTool(configured(tmp_path, ["true"]), declared, outputs)
    assert made.description == "one, a tool of mine"
    assert (made.Parameters, made.effect) == ({"type": "object"}, Effect.ONCE)


@pytest.mark.parametrize("key", ["display_name", "displayName", "title"])
def test_S38_a_name_for_people_may_be_given(key: str) -> None:
    assert declarations(json.dumps([{"name": "one", key: "One"}]))[0].display_name == "One"


@pytest.mark.parametrize(
    ("given_effect", "configured_effect", "effect"),
    [(None, "once", "once"), (None, "read", "read"), ("read", "once", "read"), ("once", "read", "once")],
)
def test_S31_effect_is_the_declared_one_or_else_the_configured(
    given_effect: str | None, configured_effect: str, effect: str, tmp_path: Path, outputs: OutputStore
) -> None:
    [declared] = declarations(json.dumps([{"name": "one", "effect": given_effect}]))
    settings = configured(tmp_path, ["true"], effect=configured_effect)
    assert DiscoveredTool(settings, declared, outputs).build_declaration().effect == effect


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ("", "it printed no JSON"),
        ("hello\n[]", "it printed no JSON"),
        ("[", "it printed no JSON"),
        ("[] []", "it printed no JSON"),
        ("[" * 100_000, "it printed no JSON"),
        ('[{"name": "one", "parameters": {"default": NaN}}]', "NaN is not JSON"),
        ('[{"name": "one", "parameters": {"default": -Infinity}}]', "-Infinity is not JSON"),
        ("null", "must print a JSON array"),
        ("7", "must print a JSON array"),
        ('"one"', "must print a JSON array"),
        ("[7]", "declaration 1 cannot be used"),
        ("[null]", "declaration 1 cannot be used"),
        ('[{"name": "one"}, {"nam": "two"}]', "declaration 2 cannot be used: name"),
        ('[{"name": 7}]', "declaration 1 cannot be used: name"),
        ('[{"name": "one", "effect": "maybe"}]', "declaration 1 cannot be used: effect"),
        ('[{"name": "one", "parameters": []}]', "declaration 1 cannot be used: parameters"),
        (json.dumps([{"name": "x" * 100_000, "effect": "maybe"}]), "declaration 1 cannot be used: effect"),
        (json.dumps([{"name": f"t{number}"} for number in range(1_001)]), "it declares 1,001 tools"),
    ],
    ids=lambda value: value[:30],
)
def test_S38_what_is_no_declaration_is_refused_with_the_reason(printed: str, words: str) -> None:
    with pytest.raises(BadInput) as error:
        declarations(printed)
    assert words in str(error.value)
    assert len(str(error.value)) < 600


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "tools", "function", "functionDeclarations", "parameters", "type"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=10,
)


@given(JSON)
def test_S38_whatever_is_printed_is_declarations_or_refused(printed: Any) -> None:
    try:
        assert all(declared.name is not None for declared in declarations(json.dumps(printed)))
    except BadInput:
        return


# How a discovery runs


@pytest.mark.parametrize("ours", OUR_PREFIXES)
async def test_S38_discovery_runs_in_its_folder_with_its_environment(
    tmp_path: Path, outputs: OutputStore, monkeypatch: pytest.MonkeyPatch, ours: str
) -> None:
    monkeypatch.setenv(f"{ours}API_KEY", "secret")
    monkeypatch.setenv("INHERITED", "yes")
    code = f"""
        import json, os, sys
        ours = sorted(name for name in os.environ if name.startswith({OUR_PREFIXES}))
        told = [os.getcwd(), os.environ["ADDED"], os.environ["INHERITED"], ours, sys.stdin.read()]
        print(json.dumps([dict(name="told", description=json.dumps(told))]))
    """
    settings = configured(tmp_path, python(tmp_path, code), environment={"ADDED": "it"})
    [made] = await discovered(settings, outputs)
    assert json.loads(made.description) == [str(tmp_path), "it", "yes", ["HOLDFAST_CALL"], ""]


async def test_S38_byte_order_mark_is_no_garbage(tmp_path: Path, outputs: OutputStore) -> None:
    assert await discovered(configured(tmp_path, ["printf", r"\xef\xbb\xbf[]\r\n"]), outputs) == []


async def test_S38_what_is_said_on_standard_error_does_not_spoil_the_declarations(
    tmp_path: Path, outputs: OutputStore
) -> None:
    command = ["bash", "-c", 'echo warning >&2; echo \'[{"name": "one"}]\'; head -c 1000000 /dev/zero >&2']
    assert [made.name for made in await discovered(configured(tmp_path, command), outputs)] == ["one"]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["bash", "-c", "echo broken >&2; exit 3"], "The command exited with code 3; it said: broken"),
        (["bash", "-c", "echo '[]'; exit 3"], "The command exited with code 3"),
        (["bash", "-c", "kill -9 $$"], "The command was ended by signal 9"),
        (["bash", "-c", "echo only errors >&2"], "it printed nothing; it said: only errors"),
        (["true"], "it printed nothing"),
        (["echo", "hello"], "it printed no JSON"),
        (["printf", r"\xff\xfe\x00"], "it printed no JSON"),
        (["bash", "-c", r"printf '\033[31mred' >&2; exit 1"], "it said: red"),
        (["./missing"], "could not start"),
        (["./not-executable"], "Permission denied"),
        (["."], "could not start"),
    ],
)
async def test_S38_discovery_that_fails_is_refused_with_the_reason(
    tmp_path: Path, outputs: OutputStore, command: list[str], words: str
) -> None:
    (tmp_path / "not-executable").write_text("#!/bin/sh\necho []")
    told = await refusal(configured(tmp_path, command), outputs)
    assert words in told
    assert "\x1b" not in told


async def test_S38_long_complaint_is_told_by_its_end(tmp_path: Path, outputs: OutputStore) -> None:
    command = ["bash", "-c", "seq 1 100000 >&2; echo the cause >&2; exit 1"]
    told = await refusal(configured(tmp_path, command), outputs)
    assert told.endswith("the cause")
    assert len(told) < 2_200


async def test_S38_folder_that_is_not_there_is_refused(tmp_path: Path, outputs: OutputStore) -> None:
    assert "could not start" in await refusal(configured(tmp_path / "missing", ["echo", "[]"]), outputs)


@pytest.mark.parametrize("amount", ["head -c 100000000", "cat"], ids=["100 MB", "endless"])
async def test_S38_discovery_that_prints_too_much_is_ended(tmp_path: Path, outputs: OutputStore, amount: str) -> None:
    settings = configured(tmp_path, ["bash", "-c", f"yes | {amount}"], name=f"floods{uuid4().hex[:8]}")
    began = time.monotonic()
    tracemalloc.start()
    try:
        told = await refusal(settings, outputs)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert told == "it printed over 4,000,000 bytes"
    assert time.monotonic() - began < 60
    assert peak < 20_000_000
    assert marked(f"discovery/{settings.name}/") == []


HANGS = {
    "sleeps": "import time; time.sleep(600)",
    "waits for input": "import sys, time; sys.stdin.read(); time.sleep(600)",
    "ignores SIGTERM": "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)",
    "has children": "import subprocess; subprocess.run(['bash', '-c', 'sleep 600 & sleep 600 | sleep 600'])",
    "double fork": """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(600)
            os._exit(0)
        time.sleep(600)
    """,
}


@pytest.mark.parametrize("how", HANGS)
async def test_S38_discovery_that_hangs_is_ended_with_everything_it_started(
    tmp_path: Path, outputs: OutputStore, how: str
) -> None:
    settings = configured(tmp_path, python(tmp_path, HANGS[how]), timeout_seconds=1.0, name=f"hangs{uuid4().hex[:8]}")
    began = time.monotonic()
    assert (await refusal(settings, outputs)).startswith("it took longer than 1 seconds")
    assert time.monotonic() - began < 60
    assert marked(f"discovery/{settings.name}/") == []


async def test_S38_discovery_that_hangs_keeps_what_it_complained_of(tmp_path: Path, outputs: OutputStore) -> None:
    command = ["bash", "-c", "echo no network >&2; sleep 600"]
    told = await refusal(configured(tmp_path, command, timeout_seconds=1.0), outputs)
    assert told == "it took longer than 1 seconds; it said: no network"


async def test_S38_daemon_that_a_discovery_leaves_behind_is_ended(tmp_path: Path, outputs: OutputStore) -> None:
    settings = configured(tmp_path, ["bash", "-c", "setsid sleep 600 & echo []"], name=f"daemon{uuid4().hex[:8]}")
    async with asyncio.timeout(PATIENCE):
        assert await discovered(settings, outputs) == []
    assert marked(f"discovery/{settings.name}/") == []


async def test_S38_discovery_that_is_stopped_leaves_nothing_behind(tmp_path: Path, outputs: OutputStore) -> None:
    settings = configured(tmp_path, ["bash", "-c", "sleep 600 | sleep 600"], name=f"stopped{uuid4().hex[:8]}")
    task = asyncio.create_task(discovered(settings, outputs))
    await until(lambda: len(marked(f"discovery/{settings.name}/")) >= 2)
    task.cancel()
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert marked(f"discovery/{settings.name}/") == []


@pytest.mark.parametrize("name", ["-rf", "--help", "two words", "", "a\nb", "../x y", "x" * 200])
async def test_S38_names_that_a_command_could_misread_are_refused(
    tmp_path: Path, outputs: OutputStore, name: str
) -> None:
    printed = json.dumps([{"name": name}, {"name": "with-dash_1"}])
    registry = Registry()
    for made in await discovered(configured(tmp_path, python(tmp_path, f"print({printed!r})")), outputs):
        registry.offer(made, "discovery mine")
    assert [entry.declaration.name for entry in registry.entries] == ["with-dash_1"]
    assert len(registry.problems) == 1


# How a call runs


def calling(folder: Path, outputs: OutputStore, code: str, **more: Any) -> Tool:
    """A tool whose call runs this code."""
    effect = more.pop("effect", None)
    settings = configured(folder, ["true"], call_command=python(folder, code), **more)
    [declared] = declarations(json.dumps([{"name": "work", "effect": effect}]))
    return DiscoveredTool(settings, declared, outputs)


def bound(made: Tool, workspace: Path, **arguments: Any) -> Invocation:
    entry = Registry([made]).get(made.name)
    assert entry is not None
    return made.build(entry.schema.check(arguments).given, workspace)


async def bounded(work: Awaitable[Result]) -> Result:
    async with asyncio.timeout(PATIENCE):
        return await work


async def failure(work: Awaitable[Result]) -> ToolFailure:
    with pytest.raises(ToolFailure) as failed:
        await bounded(work)
    return failed.value


ECHO = f"""
    import json, os, sys
    ours = sorted(name for name in os.environ if name.startswith({OUR_PREFIXES}))
    print(json.dumps([sys.argv[1:], json.load(sys.stdin), os.getcwd(), ours, os.environ["ADDED"]]), end="")
"""


@pytest.mark.parametrize("ours", OUR_PREFIXES)
async def test_S38_call_gets_its_name_and_its_arguments_and_prints_the_result(
    tmp_path: Path, outputs: OutputStore, run: Watched, monkeypatch: pytest.MonkeyPatch, ours: str
) -> None:
    monkeypatch.setenv(f"{ours}API_KEY", "secret")
    made = calling(tmp_path, outputs, ECHO, environment={"ADDED": "it"})
    arguments = {"text": 'ä "quoted"\n\0😀', "--flag": [None, 1.5], "deep": {"a": {}}}
    result = await bounded(bound(made, tmp_path / "elsewhere", **arguments).execute(run))
    [part] = result.parts
    assert json.loads(part.text) == [["work"], arguments, str(tmp_path), ["HOLDFAST_CALL"], "it"]


async def test_S38_large_arguments_arrive_whole(tmp_path: Path, outputs: OutputStore, run: Watched) -> None:
    made = calling(tmp_path, outputs, "import json, sys; print(len(json.load(sys.stdin)['text']))")
    result = await bounded(bound(made, tmp_path, text="x" * 900_000).execute(run))
    assert result == Result.from_text("900000\n")


async def test_S38_command_that_never_reads_its_input_ends_all_the_same(
    tmp_path: Path, outputs: OutputStore, run: Watched
) -> None:
    made = calling(tmp_path, outputs, "print('not interested')")
    assert await bounded(bound(made, tmp_path, text="x" * 900_000).execute(run)) == Result.from_text("not interested\n")


async def test_S38_standard_error_of_a_success_is_seen_live_and_is_no_result(
    tmp_path: Path, outputs: OutputStore, run: Watched
) -> None:
    made = calling(tmp_path, outputs, "import sys; print('working', file=sys.stderr); print('result')")
    assert await bounded(bound(made, tmp_path).execute(run)) == Result.from_text("result\n")
    assert "working" in run.output
    assert "result" in run.output
    assert run.pid is not None
    assert not alive(run.pid)


async def test_S32_output_is_seen_while_the_call_runs(tmp_path: Path, outputs: OutputStore, run: Watched) -> None:
    (tmp_path / "go").touch()
    code = """
        import os, sys, time
        print("first", flush=True)
        print("aside", file=sys.stderr, flush=True)
        while os.path.exists("go"):
            time.sleep(0.01)
    """
    task = asyncio.create_task(bound(calling(tmp_path, outputs, code), tmp_path).execute(run))
    await until(lambda: {"first", "aside"} <= set(run.output.split()))
    assert run.pid is not None
    assert not task.done()
    (tmp_path / "go").unlink()
    await bounded(task)


async def test_S38_call_that_prints_nothing_says_so(tmp_path: Path, outputs: OutputStore, run: Watched) -> None:
    assert await bounded(bound(calling(tmp_path, outputs, ""), tmp_path).execute(run)) == Result.from_text(
        "(no output)"
    )


async def test_S38_failing_call_tells_its_exit_code_its_output_and_its_errors(
    tmp_path: Path, outputs: OutputStore, run: Watched
) -> None:
    code = "import sys; print('half'); sys.stderr.write('\\x1b[31mthe cause'); sys.exit(3)"
    failed = await failure(bound(calling(tmp_path, outputs, code), tmp_path).execute(run))
    assert (failed.type, str(failed)) == ("command_failed", "The command exited with code 3")
    assert failed.parts == (TextPart(text="half\n"), TextPart(text="On standard error:\nthe cause"))


async def test_S38_long_complaint_of_a_call_is_told_by_its_end(
    tmp_path: Path, outputs: OutputStore, run: Watched
) -> None:
    code = "import sys; sys.stderr.write('x' * 1_000_000 + 'the cause'); sys.exit(1)"
    failed = await failure(bound(calling(tmp_path, outputs, code), tmp_path).execute(run))
    [part] = failed.parts
    assert part.text.endswith("xxthe cause")
    assert len(part.text) < 4_100


async def test_S38_characters_are_not_broken_between_two_reads(
    tmp_path: Path, outputs: OutputStore, run: Watched
) -> None:
    code = """
        import os, time
        for stream in (1, 2):
            for byte in "日本語".encode():
                os.write(stream, bytes([byte]))
                time.sleep(0.005)
        os._exit(1)
    """
    failed = await failure(bound(calling(tmp_path, outputs, code), tmp_path).execute(run))
    assert [part.text for part in failed.parts] == ["日本語", "On standard error:\n日本語"]
    assert run.output == "日本語日本語"


@pytest.mark.parametrize("command", [["./missing"], ["./not-executable"]])
async def test_S38_call_command_that_cannot_start_is_a_failure(
    tmp_path: Path, outputs: OutputStore, run: Watched, command: list[str]
) -> None:
    (tmp_path / "not-executable").write_text("")
    [declared] = declarations('[{"name": "work"}]')
    made = DiscoveredTool(configured(tmp_path, ["true"], call_command=command), declared, outputs)
    assert (await failure(bound(made, tmp_path).execute(run))).type == "command_not_started"
    assert list((tmp_path / "outputs").iterdir()) == []


@pytest.mark.parametrize("how", HANGS)
async def test_S38_call_that_runs_too_long_is_ended_and_keeps_its_output(
    tmp_path: Path, outputs: OutputStore, run: Watched, how: str
) -> None:
    code = f"print('half', flush=True)\n{textwrap.dedent(HANGS[how])}"
    made = calling(tmp_path, outputs, code, call_timeout_seconds=3.0)
    failed = await failure(bound(made, tmp_path).execute(run))
    assert (failed.type, failed.parts[0]) == ("timeout", TextPart(text="half\n"))
    assert "longer than 3 seconds" in str(failed)
    assert marked(run.key) == []
    assert made.timeout_seconds > 3, "the engine's own limit must not come first"


@pytest.mark.parametrize("how", HANGS)
async def test_S17_stopped_call_dies_with_everything_it_started(
    tmp_path: Path, outputs: OutputStore, run: Watched, how: str
) -> None:
    code = f"print('up', flush=True)\n{textwrap.dedent(HANGS[how])}"
    task = asyncio.create_task(bound(calling(tmp_path, outputs, code), tmp_path).execute(run))
    await until(lambda: run.output)
    task.cancel()
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert marked(run.key) == []
    assert list((tmp_path / "outputs").iterdir()) == [], "half an output is not kept"


async def test_S33_long_output_of_a_call_is_cut_and_kept_whole(
    tmp_path: Path, outputs: OutputStore, run: Watched
) -> None:
    made = calling(tmp_path, outputs, "import sys; sys.stdout.write('first' + 'x' * 1_000_000 + 'last')")
    [part] = (await bounded(bound(made, tmp_path).execute(run))).parts
    assert part.text.startswith("first")
    assert part.text.endswith("last")
    assert 40_000 <= len(part.text) < 40_300
    [whole] = (tmp_path / "outputs").iterdir()
    assert isinstance(part, TextPart)
    assert (part.whole, whole.stat().st_size) == (str(whole), 1_000_009)
    assert outputs.bound_parts((part,)) == (part,)


async def test_S32_terminal_escapes_of_a_call_are_neutralised(
    tmp_path: Path, outputs: OutputStore, run: Watched
) -> None:
    made = calling(tmp_path, outputs, r"print('\x1b[31mred\x1b[0m\x07')")
    assert await bounded(bound(made, tmp_path).execute(run)) == Result.from_text("red\n")


async def test_S20_call_asks_with_its_command_unless_it_merely_reads(tmp_path: Path, outputs: OutputStore) -> None:
    asked = await bound(calling(tmp_path, outputs, "", effect="once"), tmp_path, a=1).should_confirm()
    assert asked is not None
    assert (asked.kind, asked.title) == ("exec", 'work {"a": 1}')
    reading = bound(calling(tmp_path, outputs, "", effect="read"), tmp_path)
    assert await reading.should_confirm() is None
    assert reading.is_concurrency_safe()


async def test_S20_words_of_the_command_are_shown_as_they_are_split(tmp_path: Path, outputs: OutputStore) -> None:
    settings = configured(tmp_path, ["true"], call_command=["run me", "--as", "a b;c"])
    [declared] = declarations('[{"name": "work"}]')
    asked = await bound(DiscoveredTool(settings, declared, outputs), tmp_path).should_confirm()
    assert asked is not None
    assert asked.command == "'run me' --as 'a b;c' work"


def test_S6_arguments_of_a_call_are_checked_against_the_declaration(tmp_path: Path, outputs: OutputStore) -> None:
    schema = {"properties": {"count": {"type": "integer"}}, "additionalProperties": False}
    [declared] = declarations(json.dumps([{"name": "work", "parameters": schema}]))
    made = DiscoveredTool(configured(tmp_path, ["true"]), declared, outputs)
    with pytest.raises(ValueError, match="count: must be a whole number"):
        bound(made, tmp_path, count="three")


def test_types_in_capitals_are_those_of_json_schema() -> None:
    parameters = {"type": "OBJECT", "properties": {"type": {"type": "STRING", "enum": ["STRING"]}}}
    [declared] = declarations(json.dumps([{"name": "one", "parameters": parameters}]))
    assert declared.parameters == {
        "type": "object",
        "properties": {"type": {"type": "string", "enum": ["STRING"]}},
    }
