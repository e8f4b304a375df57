"""Building timelines from examined runs (S43).

The state of each call comes from a replay with today's code, the senders and workers from the history itself. Of a run
that today's code cannot replay, only the facts of the history are shown, with a note.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from temporalio.converter import DataConverter

from holdfast.names import SESSION_WORKFLOW
from holdfast.workers.audit.read.examined_run import ExaminedRun, examine_run
from holdfast.workers.audit.read.recorder import DECIDE
from holdfast.workers.audit.read.workflow_runs import GatheredRuns
from holdfast.workers.audit.timeline.call_story import build_call_stories, find_call, list_run_decisions
from holdfast.workers.audit.timeline.entries import KIND_ORDER, build_message, list_entries, parse_input
from holdfast.workers.audit.timeline.timeline import (
    CallStory,
    MessageStory,
    RunStory,
    Timeline,
)


async def build_timeline(gathered: GatheredRuns, converter: DataConverter) -> Timeline:
    """Build the timeline of a turn or a session, with its child turns."""
    looked = [await examine_run(run, converter) for run in gathered.runs]
    top = _build_workflow_timeline(gathered.id, _build_tree(looked), set())
    return top.model_copy(update={"notes": (*top.notes, *gathered.lacking)})


@dataclass(frozen=True)
class _RunTree:
    """The runs of each workflow, and the child workflows of each."""

    runs: dict[str, list[ExaminedRun]]
    within: dict[str, list[str]]


def _build_tree(looked: Iterable[ExaminedRun]) -> _RunTree:
    """A workflow is a child of the parent of its first run."""
    runs: dict[str, list[ExaminedRun]] = {}
    for one in looked:
        runs.setdefault(one.run.workflow, []).append(one)
    within: dict[str, list[str]] = {}
    for workflow, (first, *_) in runs.items():
        within.setdefault(first.run.parent or "", []).append(workflow)
    return _RunTree(runs, within)


def _build_workflow_timeline(workflow: str, family: _RunTree, seen: set[str]) -> Timeline:
    seen.add(workflow)
    ours = family.runs[workflow]
    children = [child for child in family.within.get(workflow, ()) if child not in seen]
    first, last = ours[0], ours[-1]
    input = parse_input(first.facts.input)
    entries = [entry for place, one in enumerate(ours, start=1) for entry in list_entries(one, place)]
    return Timeline(
        id=workflow,
        kind="session" if first.run.type == SESSION_WORKFLOW else "turn",
        status=last.facts.status,
        reason=last.facts.why,
        requester=input.requester if input else None,
        started_by=first.facts.identity,
        model=", ".join(input.model.model_names) if input and input.model else None,
        mode=last.turn.decisions.mode.value if last.turn else input.mode.value if input else "default",
        prompt=input.prompt if input else None,
        answer=last.turn.conversation.text if last.turn else None,
        began=first.facts.began,
        ended=last.facts.ended,
        runs=tuple(map(_build_run_story, ours)),
        entries=tuple(sorted(entries, key=lambda entry: (entry.at, KIND_ORDER.get(entry.kind, 0)))),
        calls=_collect_calls(ours),
        messages=tuple(message for one in ours for message in _list_messages(one)),
        turns=tuple(_build_workflow_timeline(child, family, seen) for child in children if child not in seen),
        notes=tuple(
            f"today's code cannot replay it, so only the facts of the history are shown: {words}"
            for one in ours
            for words in one.break_reasons
        ),
    )


def _build_run_story(examined: ExaminedRun) -> RunStory:
    return RunStory(
        run=examined.run.run,
        began=examined.facts.began,
        ended=examined.facts.ended,
        how=examined.facts.how,
        events=len(examined.run.events),
        workers=tuple(examined.facts.workers),
        policy=examined.validation.policy,
        catalogue=examined.validation.catalogue,
        hooks=examined.validation.hooks,
    )


def _collect_calls(looked: Iterable[ExaminedRun]) -> tuple[CallStory, ...]:
    """Each call once: a call that was still queued at the end of a run is taken from the next run."""
    found: dict[str, CallStory] = {}
    for one in looked:
        decisions: dict[str, list[MessageStory]] = {}
        for decision in list_run_decisions(one):
            decisions.setdefault(find_call(decision) or "", []).append(decision)
        found |= {call.id: call for call in build_call_stories(one.turn, one.facts, decisions)} if one.turn else {}
    return tuple(found.values())


def _list_messages(examined: ExaminedRun) -> Iterator[MessageStory]:
    """The messages that belong to no call."""
    known = {call.id for call in _collect_calls([examined])}
    yield from (decision for decision in list_run_decisions(examined) if find_call(decision) not in known)
    yield from (
        build_message(message) for message in examined.facts.messages if message.name not in (DECIDE, "add_calls")
    )
