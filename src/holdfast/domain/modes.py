"""How much proceeds without asking (S27). A turn wishes for a mode; a worker says which it permits."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """What a turn wishes for."""

    DEFAULT = "default"
    AUTO_EDIT = "auto_edit"
    """Edits inside the workspace proceed."""
    PLAN = "plan"
    """Only tools that merely read."""
    YOLO = "yolo"
    """Everything but what is denied and, unless a setting lifts that, what destroys or cannot be read."""


class Confirming(StrEnum):
    """Which calls a person is asked about."""

    POLICY = "policy"
    """Those that rules, hooks and tools want to have asked about."""
    ALWAYS = "always"
    """All of them, whatever a rule, a grant or a mode allows. What is denied stays denied."""


DEFAULT_PERMITTED = (Mode.DEFAULT, Mode.AUTO_EDIT, Mode.PLAN)
"""What a worker permits that was not told otherwise: nobody gets everything by asking for it."""
