"""Holdfast: a durable tool-call engine for AI assistants, on Temporal.

The names below are the public surface. They are loaded when they are first used, so that the workflow sandbox, which
imports this package anew for every workflow, does not load clients and servers with it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.approvals import ApprovalId, Confirmation, Decision, Outcome
    from holdfast.calls import Call, CallRequest, Status
    from holdfast.client import Holdfast, Turn
    from holdfast.content import CallError, Response, Result, TextPart
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
    from holdfast.plugin import HoldfastPlugin
    from holdfast.settings import Settings
    from holdfast.tools import Effect, Invocation, Run, Tool, ToolFailure
    from holdfast.turns import LiveOutput, ModelChoice, ModelReply, TurnInput, TurnResult
    from holdfast.views import ApprovalView, TurnView

__version__ = "0.1.0"

_HOMES = {
    "approvals": ("ApprovalId", "Confirmation", "Decision", "Outcome"),
    "calls": ("Call", "CallRequest", "Status"),
    "client": ("Holdfast", "Turn"),
    "content": ("CallError", "Response", "Result", "TextPart"),
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
    "plugin": ("HoldfastPlugin",),
    "settings": ("Settings",),
    "tools": ("Effect", "Invocation", "Run", "Tool", "ToolFailure"),
    "turns": ("LiveOutput", "ModelChoice", "ModelReply", "TurnInput", "TurnResult"),
    "views": ("ApprovalView", "TurnView"),
}

__all__ = [
    "ApprovalId",
    "ApprovalView",
    "BadInput",
    "Call",
    "CallError",
    "CallRequest",
    "Confirmation",
    "Decision",
    "DecisionRefused",
    "Effect",
    "Event",
    "Holdfast",
    "HoldfastError",
    "HoldfastPlugin",
    "Invocation",
    "LiveOutput",
    "ModelChoice",
    "ModelReply",
    "NoWorker",
    "Outcome",
    "Refused",
    "RequestRefused",
    "Response",
    "Result",
    "Run",
    "ServerUnavailable",
    "Settings",
    "Status",
    "TextPart",
    "Tool",
    "ToolFailure",
    "Turn",
    "TurnInput",
    "TurnNotFound",
    "TurnResult",
    "TurnView",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"holdfast.{module}"), name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
