"""Parses commands with tree-sitter's grammar of bash, in a helper process (`process.sidecar`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

MAX_COMMANDS = 50
_COMMANDS = frozenset(["command", "declaration_command", "unset_command", "test_command"])
_PARSER = Parser(Language(tree_sitter_bash.language()))


def answer(command: str) -> dict[str, Any]:
    """The fields of a `TreeSitterResult`: an error, the names of all programs, the words of the first ones."""
    names: dict[str, None] = {}
    commands: list[list[str]] = []
    root = _PARSER.parse(command.encode()).root_node
    for node in _walk_nodes(root):
        if node.type == "command_name":
            names[_read_text(node)] = None
        elif node.type in _COMMANDS and len(commands) < MAX_COMMANDS:
            parts = (part for part in node.children if "redirect" not in part.type and "assignment" not in part.type)
            commands.append([_read_text(part) for part in parts])
    return {"has_error": root.has_error, "names": list(names), "commands": commands}


def _walk_nodes(root: Node) -> Iterator[Node]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.named_children))


def _read_text(node: Node) -> str:
    return node.text.decode(errors="replace") if node.text else ""
