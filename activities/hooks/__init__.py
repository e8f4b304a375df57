"""Hooks before and after a tool: other people's commands and functions that have a say in every call (S35).

They tighten and never loosen: a hook can deny, ask, rewrite arguments, replace a result or stop the turn, and there is
no word with which it could allow. One that fails denies, unless its settings say otherwise (docs/how-to/hooks.md);
the names below are what the author of a hook imports, and `load_hooks.load_hooks` is what a worker calls.
"""

from __future__ import annotations

from holdfast.activities.hooks.decorators import after_tool, before_tool
from holdfast.activities.hooks.hook_io import AfterAnswer, AfterTool, BeforeAnswer, BeforeTool

__all__ = ["AfterAnswer", "AfterTool", "BeforeAnswer", "BeforeTool", "after_tool", "before_tool"]
