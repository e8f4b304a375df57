"""What the tools of servers are called: `server__tool`, in the characters and the length that every model's API takes.

A name is told apart at its first `__`, so `a_b` with `c` and `a` with `b_c` are two. Where that would not do (a server
with `__` in its own name, characters nobody takes, a name that is too long, or that looks like another's with its hash)
a part of a hash is added, the same each time. Pure.
"""

from __future__ import annotations

import hashlib
import json
import re

READ_TOOLS = ("list_resources", "read_resource", "list_prompts", "get_prompt")
"""Tools of ours that read what a server has beside its own."""
SEPARATOR = "__"
NAME_LIMIT = 64
"""Characters of a name."""
_MARK_LENGTH = 8
_VALID_NAME = re.compile(r"[A-Za-z0-9_-]+")
_INVALID_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")
_MARK_SUFFIX = re.compile(r"_[0-9a-f]{8}$")
"""A name that looks as if it had a part of a hash: it gets one, so that it is nobody else's."""


def build_prefix(server: str) -> str:
    """What the names of a server's tools begin with."""
    return f"{server}{SEPARATOR}"


def build_tool_name(server: str, tool: str) -> str:
    """The name by which models know a server's tool."""
    plain = f"{build_prefix(server)}{tool}"
    told_apart = SEPARATOR not in server and not server.endswith("_") and not _MARK_SUFFIX.search(tool)
    if told_apart and _VALID_NAME.fullmatch(tool) and len(plain) <= NAME_LIMIT:
        return plain
    mark = hashlib.sha256(json.dumps([server, tool]).encode()).hexdigest()[:_MARK_LENGTH]
    return f"{_INVALID_CHARACTER.sub('_', plain)[: NAME_LIMIT - _MARK_LENGTH - 1]}_{mark}"
