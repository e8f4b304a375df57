"""Every name that histories, other programs or a Temporal server know: workflows, activities, messages, attributes.

They are in histories for ever, so a name never changes. Search attributes are plain text on the server: they never hold
arguments.
"""

from __future__ import annotations

from temporalio.common import SearchAttributeKey

TURN_WORKFLOW = "holdfast.turn"
SESSION_WORKFLOW = "holdfast.session"

VALIDATE_ACTIVITY = "holdfast.validate"
EXECUTE_ACTIVITY = "holdfast.execute"
MODEL_ACTIVITY = "holdfast.model"
COMPACT_ACTIVITY = "holdfast.compact"
OUTPUT_ACTIVITY = "holdfast.output"
BACKGROUND_ACTIVITY = "holdfast.background"

STATE_ATTRIBUTE = SearchAttributeKey.for_keyword("HoldfastState")
TOOLS_ATTRIBUTE = SearchAttributeKey.for_keyword_list("HoldfastTools")
DEADLINE_ATTRIBUTE = SearchAttributeKey.for_datetime("HoldfastDeadline")

MEMO_KEY = "holdfast"

FILES_DRIVER = "holdfast.files"
S3_DRIVER = "aws.s3driver"
"""Temporal's own driver, as is the next."""
GCS_DRIVER = "gcp.gcsdriver"
MISSING_DRIVER = "holdfast.nowhere"


class TurnUpdate:
    """The updates of a turn. `DECIDE` and `ADD_CALLS` are also signals."""

    DECIDE = "decide"
    EDITING = "editing"
    ASK = "ask"
    SET_MODE = "set_mode"
    REVOKE = "revoke"
    SUBMIT = "submit"
    ADD_CALLS = "add_calls"
    WITHDRAW = "withdraw"
    CANCEL_CALL = "cancel_call"
    CANCEL_BATCH = "cancel_batch"
    FINISH = "finish"


class TurnSignal:
    """The signals of a turn."""

    DECIDE = "decide"
    ADD_CALLS = "add_calls"
    INTERRUPT = "interrupt"
    APPEND = "append"
    TIGHTEN = "tighten"
    TAKE_BACK = "take_back"


class TurnQuery:
    """The queries of a turn."""

    VIEW = "view"
    EVENTS = "events"
    CALL = "call"
    BATCH = "batch"
    BATCHES = "batches"
    ANSWERS = "answers"
    RUNS = "runs"
    GRANTS = "grants"
    CONVERSATION = "conversation"
    MESSAGES = "messages"


class SessionUpdate:
    """The updates of a session."""

    SEND = "send"
    WITHDRAW = "withdraw"
    INTERRUPT = "interrupt"
    CLOSE = "close"
    CONFIGURE = "configure"
    REVOKE = "revoke"


class SessionSignal:
    """The signals of a session."""

    MOVE = "move"
    """Without a body: continue as new on the newest worker version, as soon as no turn runs."""


class SessionQuery:
    """The queries of a session."""

    VIEW = "view"
    MESSAGES = "messages"
    GRANTS = "grants"
