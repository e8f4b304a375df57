"""Approval modes (S27). A turn requests a mode; its worker decides whether it permits that."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """The approval mode of a turn: which calls proceed without a question (S27)."""

    DEFAULT = "default"
    """Calls proceed as rules, hooks and tools say."""
    AUTO_EDIT = "auto_edit"
    """Edits inside the workspace proceed too."""
    PLAN = "plan"
    """Only tools with the effect `read` may run."""
    YOLO = "yolo"
    """All calls proceed that are not denied. Destructive or unreadable commands need an approval (`yolo_asks`)."""


class Confirming(StrEnum):
    """Which calls need an approval."""

    POLICY = "policy"
    """Calls for which a rule, a hook or a tool requires an approval."""
    ALWAYS = "always"
    """All calls, whatever a rule, a grant or a mode allows. Denied calls stay denied."""


DEFAULT_PERMITTED = (Mode.DEFAULT, Mode.AUTO_EDIT, Mode.PLAN)
"""The modes that a worker permits by default: `yolo` needs a setting."""
