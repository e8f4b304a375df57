"""Holdfast: a durable tool-call engine for AI assistants, on Temporal.

The names below are the public surface. They are loaded when they are first used, so that the workflow sandbox, which
imports this package anew for every workflow, does not load clients and servers with it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.activities.hooks import AfterAnswer, AfterTool, BeforeAnswer, BeforeTool, after_tool, before_tool
    from holdfast.client.client import Holdfast
    from holdfast.client.session import Session
    from holdfast.client.turn import Turn
    from holdfast.config.settings import Settings
    from holdfast.domain.approvals.approval import ApprovalId, Confirmation, Decision, DecisionAction, Offer, Scope
    from holdfast.domain.calls.call import Call, CallRequest, Status
    from holdfast.domain.calls.events import Event
    from holdfast.domain.calls.scheduling import Schedule
    from holdfast.domain.calls.tool import (
        DecisionNotice,
        Declaration,
        Effect,
        Interrupt,
        Invocation,
        Retries,
        Run,
        StrictParameters,
        Tool,
        ToolFailure,
    )
    from holdfast.domain.content import (
        BlobPart,
        CallError,
        DataPart,
        FunctionResponse,
        Response,
        Result,
        TextPart,
        build_function_response,
    )
    from holdfast.domain.context import Context, ContextChange
    from holdfast.domain.conversation.messages import ModelChoice, ModelReply, ModelSettings, ScriptedReply
    from holdfast.domain.modes import Confirming, Mode
    from holdfast.domain.session.session_io import SessionInput, SessionView
    from holdfast.domain.turn.activity_io import LiveOutput
    from holdfast.domain.turn.limits import TurnLimits
    from holdfast.domain.turn.turn_io import TurnInput, TurnResult
    from holdfast.domain.turn.views import ApprovalView, TurnView
    from holdfast.errors import (
        BadInput,
        DecisionRefused,
        HoldfastError,
        NoWorker,
        Refused,
        RequestRefused,
        ServerUnavailable,
        TurnNotFound,
    )
    from holdfast.function_tools.decorator import FunctionTool, tool
    from holdfast.plugin.plugin import HoldfastPlugin

__version__ = "0.1.0"

_HOMES = {
    "activities.hooks": (
        "AfterAnswer",
        "AfterTool",
        "BeforeAnswer",
        "BeforeTool",
        "after_tool",
        "before_tool",
    ),
    "client.client": ("Holdfast",),
    "client.session": ("Session",),
    "client.turn": ("Turn",),
    "config.settings": ("Settings",),
    "domain.approvals.approval": (
        "ApprovalId",
        "Confirmation",
        "Decision",
        "DecisionAction",
        "Offer",
        "Scope",
    ),
    "domain.calls.call": (
        "Call",
        "CallRequest",
        "Status",
    ),
    "domain.calls.events": ("Event",),
    "domain.calls.scheduling": ("Schedule",),
    "domain.calls.tool": (
        "DecisionNotice",
        "Declaration",
        "Effect",
        "Interrupt",
        "Invocation",
        "Retries",
        "Run",
        "StrictParameters",
        "Tool",
        "ToolFailure",
    ),
    "domain.content": (
        "BlobPart",
        "CallError",
        "DataPart",
        "FunctionResponse",
        "Response",
        "Result",
        "TextPart",
        "build_function_response",
    ),
    "domain.context": (
        "Context",
        "ContextChange",
    ),
    "domain.conversation.messages": (
        "ModelChoice",
        "ModelReply",
        "ModelSettings",
        "ScriptedReply",
    ),
    "domain.modes": (
        "Confirming",
        "Mode",
    ),
    "domain.session.session_io": (
        "SessionInput",
        "SessionView",
    ),
    "domain.turn.activity_io": ("LiveOutput",),
    "domain.turn.limits": ("TurnLimits",),
    "domain.turn.turn_io": (
        "TurnInput",
        "TurnResult",
    ),
    "domain.turn.views": (
        "ApprovalView",
        "TurnView",
    ),
    "errors": (
        "BadInput",
        "DecisionRefused",
        "HoldfastError",
        "NoWorker",
        "Refused",
        "RequestRefused",
        "ServerUnavailable",
        "TurnNotFound",
    ),
    "function_tools.decorator": (
        "FunctionTool",
        "tool",
    ),
    "plugin.plugin": ("HoldfastPlugin",),
}

__all__ = [
    "AfterAnswer",
    "AfterTool",
    "ApprovalId",
    "ApprovalView",
    "BadInput",
    "BeforeAnswer",
    "BeforeTool",
    "BlobPart",
    "Call",
    "CallError",
    "CallRequest",
    "Confirmation",
    "Confirming",
    "Context",
    "ContextChange",
    "DataPart",
    "Decision",
    "DecisionAction",
    "DecisionNotice",
    "DecisionRefused",
    "Declaration",
    "Effect",
    "Event",
    "FunctionResponse",
    "FunctionTool",
    "Holdfast",
    "HoldfastError",
    "HoldfastPlugin",
    "Interrupt",
    "Invocation",
    "LiveOutput",
    "Mode",
    "ModelChoice",
    "ModelReply",
    "ModelSettings",
    "NoWorker",
    "Offer",
    "Refused",
    "RequestRefused",
    "Response",
    "Result",
    "Retries",
    "Run",
    "Schedule",
    "Scope",
    "ScriptedReply",
    "ServerUnavailable",
    "Session",
    "SessionInput",
    "SessionView",
    "Settings",
    "Status",
    "StrictParameters",
    "TextPart",
    "Tool",
    "ToolFailure",
    "Turn",
    "TurnInput",
    "TurnLimits",
    "TurnNotFound",
    "TurnResult",
    "TurnView",
    "after_tool",
    "before_tool",
    "build_function_response",
    "tool",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"holdfast.{module}"), name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
