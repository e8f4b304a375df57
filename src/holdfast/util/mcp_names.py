"""Names of MCP tools: `server__tool`, in characters and a length that the API of every model accepts. Pure.

The first `__` separates both parts, so `a_b` with `c` differs from `a` with `b_c`. Where that would be ambiguous or
invalid (a server with `__` in its name, other characters, a long name, one that ends like a hash), a part of a hash is
appended. The same server and tool always give the same name.
"""

from __future__ import annotations

import hashlib
import json
import re

READ_TOOLS = ("list_resources", "read_resource", "list_prompts", "get_prompt")
"""Our own tools that read the resources and prompts of servers."""
SEPARATOR = "__"
NAME_LIMIT = 64
"""Characters of a name."""
_MARK_LENGTH = 8
_VALID_NAME = re.compile(r"[A-Za-z0-9_-]+")
_INVALID_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")
_MARK_SUFFIX = re.compile(r"_[0-9a-f]{8}$")
"""A name that ends as if a hash were appended gets one itself, so that it equals no other name."""


def build_prefix(server: str) -> str:
    """The prefix of the names of a server's tools."""
    return f"{server}{SEPARATOR}"


def build_tool_name(server: str, tool: str) -> str:
    """The name of a server's tool for models and rules."""
    plain = f"{build_prefix(server)}{tool}"
    told_apart = SEPARATOR not in server and not server.endswith("_") and not _MARK_SUFFIX.search(tool)
    if told_apart and _VALID_NAME.fullmatch(tool) and len(plain) <= NAME_LIMIT:
        return plain
    mark = hashlib.sha256(json.dumps([server, tool]).encode()).hexdigest()[:_MARK_LENGTH]
    return f"{_INVALID_CHARACTER.sub('_', plain)[: NAME_LIMIT - _MARK_LENGTH - 1]}_{mark}"
