"""Hooks before and after a tool: commands and functions of users that may tighten what the policy says (S35).

A hook can deny, ask, rewrite arguments, replace a result or stop the turn; no answer of it allows a call. A hook that
fails denies the call, unless its settings say otherwise (docs/how-to/hooks.md). The author of a hook imports the names
below; a worker calls `load_hooks.load_hooks`.
"""

from __future__ import annotations

from holdfast.activities.hooks.decorators import after_tool, before_tool
from holdfast.activities.hooks.hook_io import AfterAnswer, AfterTool, BeforeAnswer, BeforeTool

__all__ = ["AfterAnswer", "AfterTool", "BeforeAnswer", "BeforeTool", "after_tool", "before_tool"]
