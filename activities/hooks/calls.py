"""What a hook is told: the call before it may run, or with what became of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from pydantic import JsonValue

from holdfast.content import Text, drop_surrogates
from holdfast.model import Data
from holdfast.modes import Mode
from holdfast.tools import Effect


class HookCall(Data):
    """What every hook is told of a call."""

    turn_id: str
    call_id: str
    tool: str
    server: str | None = None
    effect: Effect
    arguments: dict[str, JsonValue]
    """As they would run, or ran."""
    mode: Mode = Mode.DEFAULT
    workspace: Path

    def encode(self) -> bytes:
        """As JSON, for a command. ValueError for arguments that JSON cannot say: a hook is told all or nothing."""
        told = self.model_dump(mode="json") | {"workspace": drop_surrogates(str(self.workspace))}
        return json.dumps(told, ensure_ascii=False, allow_nan=False).encode()


class BeforeTool(HookCall):
    """A call that has not run. A hook is asked when it is validated, and again where it executes."""

    when: Literal["before"] = "before"
    phase: Literal["validate", "execute"]


class AfterTool(HookCall):
    """A call that has run, and what the model would read of it."""

    when: Literal["after"] = "after"
    status: Literal["success", "error"]
    text: Text
    error_type: Text | None = None
