"""Holdfast: a durable tool-call engine for AI assistants, on Temporal.

The names below are the public surface. They are loaded when they are first used, so that the workflow sandbox, which
imports this package anew for every workflow, does not load clients and servers with it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.activities.hooks import AfterAnswer, AfterTool, BeforeAnswer, BeforeTool, after_tool, before_tool
    from holdfast.approvals import ApprovalId, Confirmation, Decision
    from holdfast.calls import Call, CallRequest, Status
    from holdfast.client import Holdfast, Turn
    from holdfast.content import BlobPart, CallError, DataPart, Response, Result, TextPart
    from holdfast.contexts import Context, ContextChange
    from holdfast.conversations import ModelChoice, ModelReply, ModelSettings, ScriptedReply
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
    from holdfast.events import Event
    from holdfast.functions import FunctionTool, tool
    from holdfast.limits import TurnLimits
    from holdfast.modes import Confirming, Mode
    from holdfast.outcomes import DecisionAction, Offer, Scope
    from holdfast.plugin import HoldfastPlugin
    from holdfast.responses import FunctionResponse, build_function_response
    from holdfast.schedules import Schedule
    from holdfast.session import Session
    from holdfast.sessions import SessionInput, SessionView
    from holdfast.settings import Settings
    from holdfast.tools import (
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
    from holdfast.turns import TurnInput, TurnResult
    from holdfast.views import ApprovalView, TurnView
    from holdfast.work import LiveOutput

__version__ = "0.1.0"

_HOMES = {
    "activities.hooks": ("AfterAnswer", "AfterTool", "BeforeAnswer", "BeforeTool", "after_tool", "before_tool"),
    "approvals": ("ApprovalId", "Confirmation", "Decision"),
    "calls": ("Call", "CallRequest", "Status"),
    "client": ("Holdfast", "Turn"),
    "content": ("BlobPart", "CallError", "DataPart", "Response", "Result", "TextPart"),
    "contexts": ("Context", "ContextChange"),
    "conversations": ("ModelChoice", "ModelReply", "ModelSettings", "ScriptedReply"),
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
    "events": ("Event",),
    "functions": ("FunctionTool", "tool"),
    "modes": ("Confirming", "Mode"),
    "outcomes": ("Offer", "DecisionAction", "Scope"),
    "plugin": ("HoldfastPlugin",),
    "responses": ("FunctionResponse", "build_function_response"),
    "schedules": ("Schedule",),
    "settings": ("Settings",),
    "tools": (
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
    "limits": ("TurnLimits",),
    "session": ("Session",),
    "sessions": ("SessionInput", "SessionView"),
    "turns": ("TurnInput", "TurnResult"),
    "views": ("ApprovalView", "TurnView"),
    "work": ("LiveOutput",),
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
