"""What calls run within, how it changes, and what of it counts for a call (S47)."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from holdfast.activities.builtin.shell import Shell
from holdfast.activities.execution.finish_call import resolve_context_change
from holdfast.activities.gate.gate import Gate
from holdfast.activities.gate.prepare_call import CallContext, build_rule_subject, prepare_call
from holdfast.activities.policy.grants import build_offers, find_covering_grant
from holdfast.activities.policy.load_policy import build_policy
from holdfast.activities.policy.subject import Subject
from holdfast.activities.process.output_store import OutputStore
from holdfast.activities.registry.arguments import check_arguments
from holdfast.activities.registry.registry import Registry
from holdfast.domain.approvals.approval import Decision, Offer
from holdfast.domain.approvals.grants import Grant
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.tool import Effect, ToolRef
from holdfast.domain.calls.verdicts import Allow, Ask, BoundCall, Finished
from holdfast.domain.content import Result
from holdfast.domain.context import (
    Context,
    ContextChange,
    apply_context_change,
    describe_context_change,
    select_context,
)
from tests.support.policies import load

NOW = datetime(2026, 1, 2, tzinfo=UTC)

NAMES = st.sampled_from(["A", "B", "C"])
CONTEXTS = st.builds(
    Context,
    folder=st.sampled_from([".", "sub", "sub/deep"]),
    environment=st.dictionaries(NAMES, NAMES),
    tools=st.none() | st.lists(st.sampled_from(["shell", "edit"])).map(tuple),
)
CHANGES = st.builds(
    ContextChange,
    folder=st.none() | st.sampled_from([".", "sub"]),
    environment=st.dictionaries(NAMES, st.none() | NAMES),
    tools=st.none() | st.just("all") | st.lists(st.sampled_from(["shell", "edit"])).map(tuple),
)


@given(CONTEXTS)
def test_change_that_says_nothing_changes_nothing(context: Context) -> None:
    assert apply_context_change(context, ContextChange()) == context
    assert describe_context_change(context, context) == ""


@given(CONTEXTS, CHANGES)
def test_S47_what_a_change_says_holds_and_the_rest_stays(context: Context, change: ContextChange) -> None:
    after = apply_context_change(context, change)
    assert apply_context_change(after, change) == after
    assert after.folder == (change.folder or context.folder)
    for name in {*context.environment, *change.environment}:
        assert after.environment.get(name) == change.environment.get(name, context.environment.get(name))
    assert after.tools == (None if change.tools == "all" else context.tools if change.tools is None else change.tools)
    assert bool(describe_context_change(context, after)) == (after != context)


@given(CONTEXTS)
def test_S22_call_goes_by_what_its_tool_depends_on_and_by_nothing_else(context: Context) -> None:
    assert select_context(context, ()) == {}
    assert select_context(Context(), ("folder", "environment")) == {}
    assert ("folder" in select_context(context, ("folder",))) == (context.folder != ".")
    assert select_context(context, ("environment",)).get("environment", {}) == context.environment


def test_value_that_is_given_for_a_name_is_in_no_error() -> None:
    with pytest.raises(ValidationError) as refused:
        ContextChange(environment={"TOKEN": "canary 5d1c"})
    assert "canary" not in str(refused.value)


# What a tool leaves


@pytest.fixture(autouse=True)
def sub(workspace: Path) -> Path:
    (workspace / "file").touch()
    (workspace / "out").symlink_to("/")
    (workspace / "in").symlink_to("sub")
    folder = workspace / "sub"
    folder.mkdir()
    return folder


def a_bound(*, safe: bool = False) -> BoundCall:
    tool = ToolRef(name="mover", effect=Effect.ONCE, definition="d")
    return BoundCall(
        tool=tool, title="t", arguments={}, digest="d", concurrency_safe=safe, timeout_seconds=1, heartbeat_seconds=1
    )


def after(workspace: Path, change: ContextChange, *, safe: bool = False) -> Result:
    outcome = Finished(result=Result.from_text("done").model_copy(update={"context": change}))
    made = resolve_context_change(outcome, a_bound(safe=safe), Context(folder="sub"), workspace)
    assert isinstance(made, Finished)
    assert made.result.parts[0].text == "done"
    made.model_dump_json()
    return made.result


@pytest.mark.parametrize(
    ("folder", "place"), [("sub", "sub"), ("./sub/..", "."), ("in", "sub"), ("{}/sub", "sub"), ("{}", ".")]
)
def test_S47_folder_is_taken_as_it_is_seen_from_the_workspace(workspace: Path, folder: str, place: str) -> None:
    result = after(workspace, ContextChange(folder=folder.format(workspace), environment={"A": "B"}))
    assert result.context == ContextChange(folder=place, environment={"A": "B"})
    assert len(result.parts) == 1


@pytest.mark.parametrize("folder", ["..", "/", "out", "out/tmp", "file", "gone", "file/x", "a\0b", "x" * 4_000])
def test_S47_folder_that_is_none_of_the_workspace_is_left_out_and_told(workspace: Path, folder: str) -> None:
    result = after(workspace, ContextChange(folder=folder, environment={"A": "B"}))
    assert result.context == ContextChange(environment={"A": "B"})
    note = result.parts[-1].text
    assert note.startswith("[The calls after it stay in the folder 'sub': ")
    assert "\n" not in note
    assert len(note) < 500


@pytest.mark.parametrize(
    "change",
    [
        ContextChange.model_construct(folder=5),
        ContextChange.model_construct(environment={"A": "no name"}),
        ContextChange.model_construct(environment=[1]),
        ContextChange.model_construct(tools=object()),
        ContextChange().model_copy(update={"folder": "\udce9"}),
    ],
)
def test_change_that_makes_no_sense_is_left_out_and_told(workspace: Path, change: ContextChange) -> None:
    result = after(workspace, change)
    assert result.context is None
    assert result.parts[-1].text.startswith("[The context for the calls after this one is invalid: ")


def test_S47_call_that_may_run_beside_others_leaves_nothing_and_is_warned_about(
    workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        result = after(workspace, ContextChange(folder="sub"), safe=True)
    assert (result.context, len(result.parts)) == (None, 1)
    assert "'mover'" in caplog.text


# What rules and standing answers see


@pytest.fixture
def gate(workspace: Path, tmp_path: Path) -> Gate:
    rules = """
    [[rule]]
    decision = "deny"
    tool = "shell"
    arguments = { directory = "sub/secret" }

    [[rule]]
    decision = "allow"
    tool = "shell"
    command = "make"
    arguments = { directory = "." }
    """
    (workspace / "sub" / "secret").mkdir()
    return Gate(Registry([Shell(OutputStore(tmp_path / "outputs"))]), workspace, build_policy([load(rules)]))


async def judged(gate: Gate, folder: str, **more: Any) -> Any:
    request = CallRequest(tool="shell", arguments={"command": "make", **more})
    return (await gate.judge(request, CallContext(context=Context(folder=folder)))).verdict


async def test_S47_rule_is_about_where_a_command_would_run(gate: Gate) -> None:
    assert isinstance(await judged(gate, "."), Allow)
    assert isinstance(await judged(gate, "sub"), Ask)
    assert (await judged(gate, "sub/secret")).kind == "deny"
    assert isinstance(await judged(gate, "sub/secret", directory="."), Allow)
    assert (await judged(gate, ".", directory="sub/secret")).kind == "deny"


async def test_S22_call_in_another_folder_or_environment_is_another_call(gate: Gate) -> None:
    here, there = await judged(gate, "."), await judged(gate, "sub")
    assert here.bound.digest != there.bound.digest
    assert there.confirmation.title == there.bound.title == "Run make (in sub)"


async def _subject(workspace: Path, tmp_path: Path, context: Context, **more: Any) -> tuple[Subject, str]:
    registry = Registry([Shell(OutputStore(tmp_path / "outputs"))])
    entry = registry.get("shell")
    assert entry
    checked = await check_arguments(entry.schema, {"command": "make test", **more})
    prepared = await prepare_call(entry, checked, workspace, context)
    return build_rule_subject(workspace, prepared), prepared.bound.digest


def _covers(offer: Offer, subject: Subject, digest: str) -> bool:
    decision = Decision(approval_id="t/b1c1/1", digest="d", outcome=offer.outcome, scope=offer.scope, by="me")
    grant = Grant(id="g1", scope=offer.scope, covers=offer.covers, decision=decision, given_at=NOW)
    return find_covering_grant([grant], subject, digest, NOW) is not None


async def test_S47_standing_answer_for_a_command_in_one_folder_does_not_cover_it_in_another(
    workspace: Path, tmp_path: Path
) -> None:
    here, there = Context(), Context(folder="sub")
    narrow = {}
    for name, context in (("here", here), ("there", there)):
        subject, digest = await _subject(workspace, tmp_path, context)
        narrow[name] = build_offers(subject, digest, None)[0]
    assert "in the folder `sub`" in narrow["there"].covers
    for context, more, covered in (
        (here, {}, "here"),
        (there, {}, "there"),
        (there, {"directory": "."}, "here"),
        (here, {"directory": "sub"}, "there"),
        (here, {"directory": None}, "here"),
    ):
        subject, digest = await _subject(workspace, tmp_path, context, **more)
        found = [name for name, offer in narrow.items() if _covers(offer, subject, digest)]
        assert found == [covered]


async def test_S47_standing_answer_does_not_cover_a_command_to_whose_environment_the_turn_adds(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE", "canary-5d1c")
    subject, digest = await _subject(workspace, tmp_path, Context())
    narrow = build_offers(subject, digest, None)[0]
    other, other_digest = await _subject(workspace, tmp_path, Context(environment={"LD_PRELOAD": "SOURCE"}))
    assert not _covers(narrow, other, other_digest)
    assert other.sets_variables
    assert "canary" not in other.model_dump_json()
    [exactly, *_] = build_offers(other, other_digest, None)
    assert exactly.scope.digest == other_digest
