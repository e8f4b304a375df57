"""The view of a pending approval, for inboxes and viewers, with long values shortened (S40, S41).

A view takes a few kilobytes at most. `build_whole_approval` builds one with nothing cut.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from pydantic import Field, JsonValue

from holdfast.domain.approvals.approval import ApprovalId, Confirmation, Needs, Offer, ToolNotes
from holdfast.domain.base import Data
from holdfast.domain.calls.call import Call
from holdfast.domain.calls.events import shorten_line
from holdfast.domain.content import format_tool_name
from holdfast.domain.forms.validation import list_fields
from holdfast.util.text import count_changes, elide_middle, escape_controls, first_line, shorten_diff, shorten_text

ARGUMENTS_LIMIT = 1_000
DETAIL_LIMIT = 4_000
BRIEF_LIMIT = 400
FORM_LIMIT = 1_000
OFFERS_SHOWN = 6
SCOPE_LIMIT = 2_000
"""Characters of a scope. An offer with a longer one is only in the record of the call."""
INBOX_ITEMS = 20
"""Approvals whose summary is in the memo; the others of a turn are read by query."""


class ApprovalView(Data):
    """A pending approval, as the inbox and the view of its turn show it."""

    approval_id: str
    digest: str
    tool: str
    display_name: str = ""
    """The tool's name for people, as its author gives it; else its name."""
    kind: str
    title: str
    command: str | None = None
    description: str | None = None
    """The model's own description of the command, unchecked."""
    programs: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    reason: str | None = None
    diff: str | None = None
    changes: str | None = None
    """The number of lines that the whole diff adds and removes: `+3 −450`."""
    path: str | None = None
    server: str | None = None
    about: ToolNotes | None = None
    """Notes about the tool of an MCP server, with the first line of its description."""
    urls: tuple[str, ...] = ()
    question: str | None = None
    options: tuple[str, ...] = ()
    other: bool = True
    form: dict[str, JsonValue] | None = None
    """The form of a question, as a JSON schema. A long one is only in the record of the call."""
    fields: int = 0
    """The number of fields of the form."""
    arguments: str = ""
    others: str = ""
    """The arguments that no other field shows, as JSON."""
    cut: bool = False
    """A value was shortened or left out: the record of the call has the whole."""
    rule: str | None = None
    since: datetime | None = None
    offers: tuple[Offer, ...] = ()
    """The grants that may be given, the narrowest first."""
    edits: str | None = None
    """The argument whose text a person may edit."""
    needs: Needs = Needs()
    approved_by: tuple[str, ...] = ()
    editing: str | None = None
    """The person who has it open in an editor."""
    editing_until: datetime | None = None
    """When `editing` expires."""
    problem: str | None = None
    """Why the last change was rejected, or why the outcome is unknown."""
    changed_by: tuple[str, ...] = ()
    deadline: datetime | None = None
    on_deadline: str | None = None
    urgent: bool = False
    """The deadline is near."""


class InboxSummary(Data):
    """The memo of a turn with pending approvals, so that an inbox needs no worker."""

    approvals: tuple[ApprovalView, ...] = ()
    total: int = 0


class InboxView(Data):
    """The pending approvals of all turns, the most urgent first."""

    approvals: tuple[ApprovalView, ...] = ()
    unread: dict[str, str] = Field(default_factory=dict)
    """The turns whose approvals could not be read, with the reason."""


def build_approval_view(
    turn_id: str, call: Call, *, detail: int = DETAIL_LIMIT, since: datetime | None = None
) -> ApprovalView:
    """Build the view of a call that awaits approval. `detail` is the limit of characters for its long texts."""
    shown = call.confirmation or Confirmation(kind="info", title=call.tool)
    given = call.bound.arguments if call.bound else {}
    arguments, cut = format_json(given, min(detail, ARGUMENTS_LIMIT))
    unshown = shown.select_unshown(given)
    others, others_cut = format_json(unshown, detail) if unshown else ("", False)
    return ApprovalView(
        approval_id=str(ApprovalId(turn_id, call.id, call.revision)),
        digest=call.approval_digest or "",
        tool=format_tool_name(call.tool),
        display_name=find_display_name(call),
        kind=shown.kind,
        title=shorten_line(shown.title, 300),
        command=_elide_text(shown.command, detail),
        description=shorten_line(" ".join((shown.description or "").split()), min(detail, 500)) or None,
        programs=tuple(shorten_line(program, 100) for program in shown.programs[:20]),
        doubts=tuple(shorten_line(doubt, 200) for doubt in shown.doubts[:10]),
        reason=shorten_optional(shown.reason, 500),
        diff=None if shown.diff is None else escape_controls(shorten_diff(shown.diff, detail)),
        changes=None if shown.diff is None else count_changes(shown.diff.split("\n")),
        path=shorten_optional(shown.path, 300),
        server=shorten_optional(shown.server, 100),
        about=_shorten_notes(shown.about) if shown.about else None,
        urls=tuple(shorten_line(url, 300) for url in shown.urls[:10]),
        question=_elide_prose(shown.question, detail),
        options=tuple(shorten_line(option, 200) for option in shown.options[:20]),
        other=shown.other,
        form=shown.form if not _has_long_form(shown, detail) else None,
        fields=len(list_fields(shown.form)) if shown.form is not None else 0,
        arguments=arguments,
        others=others,
        cut=_has_long_form(shown, detail)
        or (cut and not shown.told)
        or others_cut
        or _has_longer(detail, shown.command, shown.description, shown.diff, shown.question),
        rule=shorten_optional(call.rule, 300),
        since=since,
        offers=_select_offers(shown.offers) if detail > BRIEF_LIMIT else (),
        edits=shown.edits,
        needs=shown.needs,
        approved_by=tuple(shorten_line(one.by or "somebody", 100) for one in call.approvals),
        editing=shorten_line(call.editing.by, 100) if call.editing else None,
        editing_until=call.editing.until if call.editing else None,
        problem=shorten_optional(call.problem, 500),
        changed_by=tuple(shorten_line(name, 100) for name in call.changed_by[:10]),
        deadline=call.deadline_at,
        on_deadline=shown.deadline.default if shown.deadline else None,
        urgent=call.warned,
    )


_SHOWN_FIELDS = (
    "kind", "title", "command", "description", "programs", "doubts", "reason", "diff", "path", "server", "about",
    "urls", "question", "options", "other", "form", "offers", "edits", "needs",
)  # fmt: skip
"""The fields of a confirmation that a view copies."""


def build_whole_approval(turn_id: str, call: Call) -> ApprovalView:
    """Build the view of a call that awaits approval with nothing shortened."""
    shown = call.confirmation or Confirmation(kind="info", title=call.tool)
    arguments = call.bound.arguments if call.bound else {}
    unshown = shown.select_unshown(arguments)
    whole = {name: getattr(shown, name) for name in _SHOWN_FIELDS}
    whole["arguments"] = json.dumps(arguments, ensure_ascii=False)
    whole["others"] = json.dumps(unshown, ensure_ascii=False) if unshown else ""
    return build_approval_view(turn_id, call).model_copy(update={**whole, "cut": False})


def build_inbox_summary(turn_id: str, waiting: tuple[Call, ...], since: Mapping[str, datetime]) -> InboxSummary:
    """Build the memo about the calls that await approval."""
    return InboxSummary(
        approvals=tuple(
            build_approval_view(turn_id, call, detail=BRIEF_LIMIT, since=since.get(call.id))
            for call in waiting[:INBOX_ITEMS]
        ),
        total=len(waiting),
    )


def drop_stale_editors(now: datetime, approvals: Iterable[ApprovalView]) -> tuple[ApprovalView, ...]:
    """Clear `editing` where it has expired."""
    none = {"editing": None, "editing_until": None}
    return tuple(
        item.model_copy(update=none) if item.editing_until and item.editing_until <= now else item for item in approvals
    )


def urgency_key(approval: ApprovalView) -> tuple[bool, float]:
    """The sort key of an inbox: near deadlines first, then the newest approvals (S41)."""
    if approval.urgent and approval.deadline:
        return False, approval.deadline.timestamp()
    return True, -(approval.since.timestamp() if approval.since else 0.0)


def find_display_name(call: Call) -> str:
    """Return the name of a call's tool for people."""
    shown = call.bound.tool.display_name if call.bound else None
    return shorten_line(shown, 200) if shown else format_tool_name(call.tool)


def format_json(value: Any, limit: int) -> tuple[str, bool]:
    """Format JSON in about `limit` characters, and return whether it was cut. Long strings keep both ends."""
    trimmed = _trim_value(value, limit // 2)
    text = json.dumps(trimmed, ensure_ascii=False)
    return escape_controls(elide_middle(text, limit)), trimmed != value or len(text) > limit


def shorten_optional(text: str | None, limit: int) -> str | None:
    """Shorten a text, and escape its control characters; None stays None."""
    return None if text is None else shorten_line(text, limit)


def _shorten_notes(about: ToolNotes) -> ToolNotes:
    return ToolNotes(
        description=first_line(about.description),
        effect=shorten_line(about.effect, 50),
        because=shorten_line(about.because, 200),
        hints=tuple(shorten_line(hint, 100) for hint in about.hints[:10]),
    )


def _has_long_form(shown: Confirmation, detail: int) -> bool:
    """Is its form too long for a brief view?"""
    return shown.form is not None and detail <= BRIEF_LIMIT and len(json.dumps(shown.form)) > FORM_LIMIT


def _select_offers(offers: tuple[Offer, ...]) -> tuple[Offer, ...]:
    """Select the first offers whose scope is not too long."""
    shown = (offer.model_copy(update={"covers": shorten_line(offer.covers, 300)}) for offer in offers[:OFFERS_SHOWN])
    return tuple(offer for offer in shown if len(offer.scope.model_dump_json()) <= SCOPE_LIMIT)


def _elide_text(text: str | None, limit: int) -> str | None:
    return None if text is None else escape_controls(elide_middle(text, limit))


def _has_longer(limit: int, *texts: str | None) -> bool:
    return any(len(text or "") > limit for text in texts)


def _elide_prose(text: str | None, limit: int) -> str | None:
    """Shorten a text of several lines, and escape all control characters but line breaks."""
    return None if text is None else "\n".join(escape_controls(row) for row in elide_middle(text, limit).split("\n"))


def _trim_value(value: Any, limit: int) -> Any:
    """Cut long strings before they are serialised, so that views of huge arguments stay cheap."""
    if isinstance(value, str):
        return elide_middle(value, limit)
    if isinstance(value, dict):
        return {shorten_text(str(key), 200): _trim_value(item, limit) for key, item in list(value.items())[:100]}
    if isinstance(value, list):
        return [_trim_value(item, limit) for item in value[:100]]
    return value
