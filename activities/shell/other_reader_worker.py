"""Tree-sitter's grammar of bash, in a process of its own: a command that kills it kills nothing else.

It is run as a script, away from the package, and answers a line of JSON with a line of JSON (`other_reader.py`). The
parser is C, its input is whatever a model wrote, and some of that takes seconds: what takes too long ends the process.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

CPU_SECONDS = 1.0
"""Of one command. Time of the processor: a busy machine changes nothing about what can be read."""
MEMORY_BYTES = 2**30
MOST_COMMANDS = 50

_COMMANDS = frozenset(["command", "declaration_command", "unset_command", "test_command"])


def main(folders: list[str]) -> None:
    """Answer until nobody asks any more. The packages are in the first of these folders that have them."""
    sys.path[:0] = folders
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    parser = Parser(Language(tree_sitter_bash.language()))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        seen = look(parser, json.loads(line))
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.buffer.write(json.dumps(seen).encode() + b"\n")
        sys.stdout.buffer.flush()


def look(parser: Parser, command: str) -> dict[str, Any]:
    """Does it see an error, which programs does it see, and the words of the first ones."""
    names: dict[str, None] = {}
    commands: list[list[str]] = []
    root = parser.parse(command.encode()).root_node
    for node in _nodes(root):
        if node.type == "command_name":
            names[_text(node)] = None
        elif node.type in _COMMANDS and len(commands) < MOST_COMMANDS:
            parts = (part for part in node.children if "redirect" not in part.type and "assignment" not in part.type)
            commands.append([_text(part) for part in parts])
    return {"has_error": root.has_error, "names": list(names), "commands": commands}


def _nodes(root: Node) -> Iterator[Node]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.named_children))


def _text(node: Node) -> str:
    return node.text.decode(errors="replace") if node.text else ""


if __name__ == "__main__":
    main(sys.argv[1:])
