"""Hooks: what they may answer, what counts as a failure, and what several of them say together."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.activities.hooks import AfterAnswer, BeforeAnswer, BeforeTool
from holdfast.activities.hooks.hook_chain import (
    BeforeOutcome,
    Denial,
    Hook,
    Hooks,
    apply_before_answer,
    apply_before_failure,
)
from holdfast.activities.hooks.hook_io import HookFailure, convert_answer, read_answer
from holdfast.config.schema import OnFailure
from holdfast.util.text import strip_controls
from tests.support.hooks import after, before, command, function, of_words
from tests.support.marks import PATIENCE

Make = Callable[..., Hook]


def printing(folder: Path, answer: Any, when: str = "before", **more: Any) -> Hook:
    return command(folder, f"print({json.dumps(answer)!r})", when, **more)


def giving(folder: Path, answer: Any, when: str = "before", **more: Any) -> Hook:
    return function(lambda call: answer, when, **more)


def giving_later(folder: Path, answer: Any, when: str = "before", **more: Any) -> Hook:
    async def hook(call: object) -> Any:
        return answer

    return function(hook, when, **more)


every_kind = pytest.mark.parametrize("make", [printing, giving, giving_later])


async def asked(*hooks: Hook, call: BeforeTool | None = None) -> BeforeOutcome:
    async with asyncio.timeout(PATIENCE):
        return await Hooks(hooks).ask_before(call or before(command="ls"))


# What they may answer

ANSWERS: dict[str, tuple[dict[str, Any], BeforeOutcome]] = {
    "nothing": ({}, BeforeOutcome({"command": "ls"})),
    "continue": ({"decision": "continue"}, BeforeOutcome({"command": "ls"})),
    "continue with a note": (
        {"reason": "fine \x1b[31mby me"},
        BeforeOutcome({"command": "ls"}, notes=("The hook 'mine': fine by me",)),
    ),
    "ask": (
        {"decision": "ask", "reason": "who knows"},
        BeforeOutcome({"command": "ls"}, ask=("The hook 'mine' asks: who knows",)),
    ),
    "ask without a reason": ({"decision": "ask"}, BeforeOutcome({"command": "ls"}, ask=("The hook 'mine' asks.",))),
    "deny": ({"decision": "deny", "reason": "never"}, BeforeOutcome({"command": "ls"}, deny=Denial("mine", "never"))),
    "deny without a reason": (
        {"decision": "deny"},
        BeforeOutcome({"command": "ls"}, deny=Denial("mine", "Denied by the hook 'mine'.")),
    ),
    "deny, whatever was rewritten": (
        {"decision": "deny", "reason": "never", "arguments": {}},
        BeforeOutcome({"command": "ls"}, deny=Denial("mine", "never")),
    ),
    "rewrite": ({"arguments": {"command": "ls -l"}}, BeforeOutcome({"command": "ls -l"}, rewritten_by=("mine",))),
    "rewrite to nothing": ({"arguments": {}}, BeforeOutcome({}, rewritten_by=("mine",))),
    "rewrite and ask": (
        {"arguments": {"n": 1}, "decision": "ask"},
        BeforeOutcome({"n": 1}, rewritten_by=("mine",), ask=("The hook 'mine' asks.",)),
    ),
    "rewrite to the same": ({"arguments": {"command": "ls"}}, BeforeOutcome({"command": "ls"})),
    "stop": (
        {"stop_turn": True, "reason": "enough"},
        BeforeOutcome({"command": "ls"}, deny=Denial("mine", "enough"), stop_turn="enough"),
    ),
    "stop, and wish to continue": (
        {"stop_turn": True, "decision": "continue"},
        BeforeOutcome(
            {"command": "ls"},
            deny=Denial("mine", "Denied by the hook 'mine'."),
            stop_turn="The hook 'mine' stops the turn.",
        ),
    ),
}


@every_kind
@pytest.mark.parametrize("name", ANSWERS)
async def test_S35_an_answer_before_a_call_counts(tmp_path: Path, make: Make, name: str) -> None:
    answer, expected = ANSWERS[name]
    assert await asked(make(tmp_path, answer)) == expected


@every_kind
async def test_S35_answers_after_a_call_replace_what_the_model_reads(tmp_path: Path, make: Make) -> None:
    async def heard(answer: Any) -> tuple[str | None, tuple[str, ...], str | None, str | None]:
        found = await Hooks([make(tmp_path, answer, "after")]).ask_after(after("a secret"))
        return found.result, found.replaced_by, found.failed, found.stop_turn

    assert await heard({}) == (None, (), None, None)
    assert await heard({"result": "a ***"}) == ("a ***", ("mine",), None, None)
    assert await heard({"result": ""}) == ("", ("mine",), None, None)
    assert await heard({"result": "a secret"}) == (None, (), None, None)
    assert await heard({"result": "x", "stop_turn": True}) == ("x", ("mine",), None, "The hook 'mine' stops the turn.")
    assert await heard({"stop_turn": True, "reason": "leak"}) == (None, (), None, "leak")


async def test_S35_no_answer_is_an_answer_that_changes_nothing(tmp_path: Path) -> None:
    call = before(command="ls")
    silent = [command(tmp_path, "pass"), command(tmp_path, "print('  ')"), of_words(["true"], tmp_path)]
    found = await asked(*silent, function(lambda call: None), call=call)
    assert found == BeforeOutcome(call.arguments)
    assert found.arguments is call.arguments


async def test_S35_what_is_not_rewritten_stays_the_same_object(tmp_path: Path) -> None:
    call = before(command="ls", deep={"a": [1, 2.0, None, "é"]})
    found = await asked(command(tmp_path, "print(json.dumps({'arguments': call['arguments']}))"), call=call)
    assert found.rewritten_by == ()
    assert found.arguments is call.arguments


@pytest.mark.parametrize(("old", "new"), [(1, 1.0), (1, True), (0, False), ("1", 1), ([], {})])
async def test_S35_values_that_only_python_takes_for_the_same_are_a_rewriting(old: Any, new: Any) -> None:
    found = await asked(function(lambda call: {"arguments": {"n": new}}), call=before(n=old))
    assert found.rewritten_by == ("mine",)
    assert type(found.arguments["n"]) is type(new)


async def test_python_hooks_may_answer_with_an_object() -> None:
    found = await asked(function(lambda call: BeforeAnswer(decision="ask", reason="object", arguments=None)))
    assert found.ask == ("The hook 'mine' asks: object",)
    replaced = await Hooks([function(lambda call: AfterAnswer(result=call.text[::-1]), "after")]).ask_after(
        after("abc")
    )
    assert replaced.result == "cba"


async def test_both_kinds_are_told_the_same(tmp_path: Path) -> None:
    told: list[Any] = []
    writing = command(tmp_path, f"open({str(tmp_path / 'told')!r}, 'w').write(json.dumps(call))")
    call = before("edit", "execute", path="é\u202e.py", nested={"a": [None, 1.5, True]})
    await asked(writing, function(told.append), call=call)
    assert json.loads((tmp_path / "told").read_text()) == {
        "when": "before", "phase": "execute", "turn_id": "turn", "call_id": "b1c1", "tool": "edit", "server": None,
        "effect": "once", "arguments": {"path": "é\u202e.py", "nested": {"a": [None, 1.5, True]}}, "mode": "default",
        "workspace": "/project",
    }  # fmt: skip
    assert told == [call]
    writing = command(tmp_path, f"open({str(tmp_path / 'told')!r}, 'w').write(json.dumps(call))", "after")
    await Hooks([writing]).ask_after(after("out", status="error", error_type="timeout", server="files"))
    found = json.loads((tmp_path / "told").read_text())
    assert {name: found[name] for name in ("when", "status", "text", "error_type", "server")} == {
        "when": "after", "status": "error", "text": "out", "error_type": "timeout", "server": "files",
    }  # fmt: skip


# What is a failure of theirs

BAD: dict[str, tuple[Any, str]] = {
    "allow": ({"decision": "allow"}, "`decision` in its answer is wrong: Input should be 'continue', 'ask' or 'deny'"),
    "a wrong decision": ({"decision": 1}, "`decision` in its answer is wrong"),
    "no decision": ({"decision": None}, "`decision` in its answer is null: leave it out"),
    "unknown": ({"decison": "deny"}, "`decison` is no key of its answer, which may have reason, stop_turn, decision"),
    "of the other kind": ({"result": "x"}, "`result` is no key of its answer"),
    "a hostile key": ({"\x1b[31mred\n": 1}, "`red` is no key"),
    "arguments that are none": ({"arguments": []}, "`arguments` in its answer is wrong: Input should be a valid dict"),
    "null for arguments": ({"arguments": None}, "`arguments` in its answer is null: leave it out to change nothing"),
    "half a character": ({"arguments": {"a": "\ud800"}}, "`arguments` in its answer is wrong"),
    "a text for a flag": ({"stop_turn": "yes"}, "`stop_turn` in its answer is wrong"),
    "a number for a flag": ({"stop_turn": 1}, "`stop_turn` in its answer is wrong"),
    "a reason that is none": ({"reason": ["x"]}, "`reason` in its answer is wrong"),
    "a list": ([{}], "its answer is a list, and must be an object"),
    "a text": ("deny", "its answer is a str, and must be an object"),
    "false": (False, "its answer is a bool, and must be an object"),
    "giant": ({"reason": "r", "arguments": {"a": "x" * 1_000_000}}, "1,000,000"),
}


@every_kind
@pytest.mark.parametrize("name", BAD)
async def test_S35_an_answer_that_is_none_denies(tmp_path: Path, make: Make, name: str) -> None:
    answer, words = BAD[name]
    found = await asked(make(tmp_path, answer))
    assert found.deny is not None
    assert found.deny.hook == "mine"
    assert found.deny.reason.startswith("The hook 'mine' failed, so the call is denied: ")
    assert words in found.deny.reason
    assert strip_controls(found.deny.reason) == found.deny.reason
    ignored = await asked(make(tmp_path, answer, on_failure="ignore"))
    assert ignored == BeforeOutcome({"command": "ls"}, notes=ignored.notes)
    assert ignored.notes[0].startswith("The hook 'mine' failed, which its settings ignore: ")


FAILING: dict[str, tuple[str, str]] = {
    "no JSON": ("print('deny')", "it printed no JSON: Expecting value: line 1 column 1"),
    "two answers": ("print('{}\\n{}')", "it printed no JSON: Extra data"),
    "null": ("print('null')", "it printed `null`"),
    "twice": ("""print('{"decision": "deny", "decision": "continue"}')""", "a key stands twice"),
    "not a number": ("""print('{"arguments": {"a": NaN}}')""", "NaN is not JSON"),
    "infinity": ("""print('{"arguments": {"a": 1e999}}')""", "hold what JSON cannot represent"),
    "a long number": ("""print('{"arguments": {"a": ' + '9' * 5_000 + '}}')""", "it printed no JSON"),
    "deep": ("print('{\"arguments\": ' + '[' * 200_000)", "it printed no JSON"),
    "not UTF-8": ('sys.stdout.buffer.write(b\'{"reason": "\\xff"}\')', "it printed no JSON: 'utf-8' codec"),
    "exit code": ("print('{}'); sys.exit('\\x1b[31mno idea')", "exited with code 1; it said: no idea"),
    "a traceback": ("raise LookupError('nothing there')", "LookupError: nothing there"),
    "a signal": ("os.kill(os.getpid(), 9)", "was ended by signal 9"),
    "many words": ("sys.exit('a' * 100_000 + 'the end')", "aaaathe end"),
}


@pytest.mark.parametrize("name", FAILING)
async def test_S35_a_command_that_fails_denies(tmp_path: Path, name: str) -> None:
    code, words = FAILING[name]
    found = await asked(command(tmp_path, code))
    assert found.deny is not None
    assert words in found.deny.reason
    assert strip_controls(found.deny.reason) == found.deny.reason
    assert len(found.deny.reason) < 3_000
    ignored = await asked(command(tmp_path, code, on_failure="ignore"))
    assert (ignored.deny, len(ignored.notes)) == (None, 1)


@pytest.mark.parametrize("words", [["./missing"], ["no-such-program-at-all"], ["/"]])
async def test_S35_a_command_that_cannot_start_denies(tmp_path: Path, words: list[str]) -> None:
    found = await asked(of_words(words, tmp_path))
    assert found.deny is not None
    assert "The command could not start" in found.deny.reason


async def test_S35_a_failure_after_a_call_withholds_its_result(tmp_path: Path) -> None:
    hooks = [function(lambda call: {"result": "half clean"}, "after", name="first")]
    hooks.append(command(tmp_path, "sys.exit(3)", "after", name="second"))
    hooks.append(function(lambda call: {"result": call.text}, "after", name="third"))
    found = await Hooks(hooks).ask_after(after("a secret"))
    assert found.failed == (
        "The call has run, but its result is withheld because the hook 'second' failed: The command exited with code 3"
    )
    assert (found.result, found.replaced_by) == (None, ())


@every_kind
@pytest.mark.parametrize(
    "answer", [{"reslt": "s3cret"}, {"result": ["s3cret"]}, {"result": {"s": "s3cret"}}, ["s3cret"]]
)
async def test_S35_what_is_withheld_is_not_told_in_the_words_about_it(tmp_path: Path, make: Make, answer: Any) -> None:
    found = await Hooks([make(tmp_path, answer, "after")]).ask_after(after("s3cret"))
    assert found.failed
    assert "s3cret" not in found.failed


async def test_S35_an_ignored_failure_after_a_call_leaves_the_result(tmp_path: Path) -> None:
    hook = command(tmp_path, "sys.exit(3)", "after", on_failure="ignore")
    found = await Hooks([hook]).ask_after(after())
    assert (found.result, found.failed) == (None, None)
    assert found.notes == ("The hook 'mine' failed, which its settings ignore: The command exited with code 3",)


class Odd(dict[str, Any]):
    """An answer that breaks when it is looked at."""

    def items(self) -> Any:
        raise SystemExit("odd")


def cyclic() -> dict[str, Any]:
    made: dict[str, Any] = {}
    made["arguments"] = made
    return made


GARBAGE: dict[str, Any] = {
    "bytes": b"{}", "a set": {1}, "a class": BeforeAnswer, "the other answer": AfterAnswer(result="x"),
    "a tuple inside": {"arguments": {"a": (1,)}}, "a number for a key": {"arguments": {1: 2}}, "numbers": {1: 2},
    "infinity": {"arguments": {"a": float("inf")}}, "an object": {"arguments": {"a": object()}}, "a circle": cyclic(),
    "unchecked": BeforeAnswer.model_construct(decision="allow"),
    "bytes for text": {"reason": b"x"}, "odd": Odd(decision="deny"),
}  # fmt: skip


@pytest.mark.parametrize("make", [giving, giving_later])
@pytest.mark.parametrize("name", GARBAGE)
async def test_S35_a_function_that_gives_garbage_denies(tmp_path: Path, make: Make, name: str) -> None:
    found = await asked(make(tmp_path, GARBAGE[name]))
    assert found.deny is not None
    assert found.deny.reason.startswith("The hook 'mine' failed")


@pytest.mark.parametrize(
    "error",
    [ValueError("\x1b[31mbad"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(),
     StopIteration(), StopAsyncIteration(), TimeoutError(), MemoryError(), RecursionError(), HookFailure("own words"),
     BaseExceptionGroup("several", [SystemExit()])],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
@pytest.mark.parametrize("later", [False, True])
async def test_S35_whatever_a_function_raises_is_contained(error: BaseException, later: bool) -> None:
    def now(call: object) -> None:
        raise error

    async def soon(call: object) -> None:
        raise error

    found = await asked(function(soon if later else now))
    assert found.deny is not None
    assert found.deny.reason.startswith("The hook 'mine' failed, so the call is denied: ")
    assert "\x1b" not in found.deny.reason


async def test_S35_a_function_cannot_change_what_it_was_given() -> None:
    def meddle(call: Any) -> None:
        call.arguments["command"] = "rm -rf /"
        call.arguments["deep"]["a"].append(1)
        object.__setattr__(call, "tool", "other")

    async def meddle_later(call: Any) -> None:
        meddle(call)

    call = before(command="ls", deep={"a": []})
    found = await asked(function(meddle), function(meddle_later), call=call)
    assert found == BeforeOutcome({"command": "ls", "deep": {"a": []}})
    assert call == before(command="ls", deep={"a": []})


async def test_S35_arguments_that_cannot_be_told_deny(tmp_path: Path) -> None:
    for odd in (float("nan"), "\ud800"):
        found = await asked(command(tmp_path, "pass"), call=before(a=odd))
        assert found.deny is not None


async def test_a_function_that_gives_back_something_to_await_is_told_how() -> None:
    async def real(call: object) -> None:
        return None

    found = await asked(function(lambda call: real(call)))
    assert found.deny is not None
    assert "write it with `async def`" in found.deny.reason


async def test_objects_that_can_be_called_are_hooks_too() -> None:
    class Now:
        def __call__(self, call: object) -> Any:
            return {"decision": "ask", "reason": "now"}

    class Later:
        async def __call__(self, call: object) -> Any:
            return {"decision": "ask", "reason": "later"}

    found = await asked(function(Now()), function(Later()))
    assert found.ask == ("The hook 'mine' asks: now", "The hook 'mine' asks: later")


# Several of them


async def test_S35_hooks_are_asked_in_order_and_see_what_the_ones_before_left(tmp_path: Path) -> None:
    def adding(word: str) -> Callable[[BeforeTool], Any]:
        return lambda call: {"arguments": {"words": [*call.arguments["words"], word]}, "reason": word}  # type: ignore[misc]

    async def adding_later(call: BeforeTool) -> Any:
        return adding("c")(call)

    by_command = "call['arguments']['words'].append('b'); print(json.dumps({'arguments': call['arguments']}))"
    found = await asked(
        function(adding("a"), name="one"),
        command(tmp_path, by_command, name="two"),
        function(lambda call: {"decision": "ask"}, name="asks"),
        function(adding_later, name="three"),
        call=before(words=[]),
    )
    assert found.arguments == {"words": ["a", "b", "c"]}
    assert found.rewritten_by == ("one", "two", "three")
    assert found.ask == ("The hook 'asks' asks.",)
    assert found.notes == ("The hook 'one': a", "The hook 'three': c")


async def test_S35_the_first_denial_ends_it() -> None:
    later: list[object] = []
    found = await asked(
        function(lambda call: {"decision": "ask"}, name="one"),
        function(lambda call: {"decision": "deny", "reason": "no"}, name="two"),
        function(later.append, name="three"),
    )
    assert (found.deny, later) == (Denial("two", "no"), [])


async def test_S35_after_a_call_all_are_asked_even_when_one_stops_the_turn() -> None:
    hooks = [
        function(
            lambda call: {"result": call.text.replace("a", "*"), "stop_turn": True, "reason": "a"}, "after", name="a"
        ),
        function(
            lambda call: {"result": call.text.replace("b", "*"), "stop_turn": True, "reason": "b"}, "after", name="b"
        ),
    ]
    found = await Hooks(hooks).ask_after(after("a b c"))
    assert (found.result, found.replaced_by, found.stop_turn) == ("* * c", ("a", "b"), "a")


async def test_S35_only_hooks_for_the_tool_and_the_moment_are_asked() -> None:
    seen: list[str] = []

    def hook(name: str, when: str = "before", **more: Any) -> Hook:
        return function(lambda call: seen.append(name), when, name=name, **more)

    hooks = Hooks(
        [
            hook("all"), hook("shell", tools=("shell",)), hook("some", tools=("x", "sh*")),
            hook("edit", tools=("edit",)), hook("part", tools=("she",)), hook("after", "after"),
        ]
    )  # fmt: skip
    await hooks.ask_before(before("shell"))
    assert seen == ["all", "shell", "some"]
    await hooks.ask_after(after(tool="shell"))
    assert seen[3:] == ["after"]


async def test_S35_without_hooks_nothing_is_asked() -> None:
    call, hooks = before(a=1), Hooks()
    assert hooks.is_empty
    assert (await hooks.ask_before(call)).arguments is call.arguments
    assert (await hooks.ask_after(after())).result is None
    assert not Hooks([function(print)]).is_empty


# Where the call executes


@every_kind
async def test_S35_rewriting_again_where_the_call_executes_denies(tmp_path: Path, make: Make) -> None:
    for means in ("deny", "ignore"):
        hook = make(tmp_path, {"arguments": {"command": "ls -l"}}, on_failure=means)
        found = await asked(hook, call=before("shell", "execute", command="ls"))
        assert found.deny is not None
        assert "must leave alone what it wrote itself" in found.deny.reason
        assert found.arguments == {"command": "ls"}
    found = await asked(hook, call=before("shell", "execute", command="ls -l"))
    assert found == BeforeOutcome({"command": "ls -l"})


async def test_S35_a_chain_that_undoes_itself_is_denied_where_it_executes() -> None:
    first = function(lambda call: {"arguments": {"n": 1}}, name="first")
    second = function(lambda call: {"arguments": {"n": 2}}, name="second")
    judged = await asked(first, second, call=before(n=0))
    assert judged.arguments == {"n": 2}
    executed = await asked(first, second, call=before("shell", "execute", n=2))
    assert executed.deny is not None
    assert executed.deny.hook == "first"


# Whatever they say

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8,
)  # fmt: skip
keys = st.sampled_from(["decision", "reason", "arguments", "stop_turn", "result", "allow"]) | st.text(max_size=5)
words = st.sampled_from(["continue", "ask", "deny", "allow", True, False])
answers = st.dictionaries(keys, words | json_values, max_size=4) | json_values


@given(st.binary() | answers.map(lambda value: json.dumps(value).encode()))
def test_S35_whatever_is_printed_is_an_answer_or_a_failure(printed: bytes) -> None:
    kinds: list[type[Any]] = [BeforeAnswer, AfterAnswer]
    for kind in kinds:
        words = ""
        try:
            answer = read_answer(printed, kind)
        except HookFailure as failure:
            words = str(failure)
        assert words or convert_answer(answer, kind) == answer
        assert strip_controls(words) == words
        assert len(words) < 1_000


good = st.builds(
    BeforeAnswer,
    decision=st.sampled_from(["continue", "ask", "deny"]),
    arguments=st.none() | st.dictionaries(st.sampled_from("abc"), st.integers(0, 2), max_size=2),
    stop_turn=st.booleans(),
)


@given(st.lists(good | st.sampled_from(list(OnFailure))), st.sampled_from(["validate", "execute"]))
def test_S35_no_order_of_answers_loosens_what_was_said(said: list[Any], phase: Any) -> None:
    found = BeforeOutcome({"a": 1})
    for place, one in enumerate(said):
        before_it = found
        if isinstance(one, OnFailure):
            found = apply_before_failure(found, str(place), "why", one)
        else:
            found = apply_before_answer(found, str(place), one, phase)
        assert found.ask[: len(before_it.ask)] == before_it.ask
        if isinstance(one, BeforeAnswer):
            assert bool(found.deny) or not (one.decision == "deny" or one.stop_turn)
            assert bool(found.deny) or len(found.ask) == len(before_it.ask) + (one.decision == "ask")
        assert found.deny or one is not OnFailure.DENY
        if phase == "execute":
            assert found.arguments is before_it.arguments
        if found.deny:
            return
