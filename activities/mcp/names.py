"""What the tools of servers are called: `server__tool`, in the characters and the length that every model's API takes.

A name is told apart at its first `__`, so `a_b` with `c` and `a` with `b_c` are two. Where that would not do (a server
with `__` in its own name, characters nobody takes, a name that is too long, or that looks like another's with its hash)
a part of a hash is added, the same each time. Pure.
"""

from __future__ import annotations

import hashlib
import json
import re

READING = ("list_resources", "read_resource", "list_prompts", "get_prompt")
"""Tools of ours that read what a server has beside its own."""
SEPARATOR = "__"
LIMIT = 64
"""Characters of a name."""
_MARK = 8
_FIT = re.compile(r"[A-Za-z0-9_-]+")
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_MARKED = re.compile(r"_[0-9a-f]{8}$")
"""A name that looks as if it had a part of a hash: it gets one, so that it is nobody else's."""


def prefix_of(server: str) -> str:
    """What the names of a server's tools begin with."""
    return f"{server}{SEPARATOR}"


def tool_name(server: str, tool: str) -> str:
    """The name by which models know a server's tool."""
    plain = f"{prefix_of(server)}{tool}"
    told_apart = SEPARATOR not in server and not server.endswith("_") and not _MARKED.search(tool)
    if told_apart and _FIT.fullmatch(tool) and len(plain) <= LIMIT:
        return plain
    mark = hashlib.sha256(json.dumps([server, tool]).encode()).hexdigest()[:_MARK]
    return f"{_UNFIT.sub('_', plain)[: LIMIT - _MARK - 1]}_{mark}"
