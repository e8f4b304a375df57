"""How large the code is, and how far a call travels through it.

    python -m tests.bench.codebase            # as a table
    python -m tests.bench.codebase --json

The way of a call is counted by a profile function in every thread: one turn with one approved shell command runs on a
real server, with its worker and its client in this process. A file counts when one of its functions is entered between
the start of the turn and its result; a return to a file that was left counts once for each time. Processes beside the
worker (the supervisor of a command) are not counted.
"""

from __future__ import annotations

import ast
import asyncio
import json
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from holdfast import TurnInput
from holdfast.testing import build_request, decide_all
from tests.support.engine import new_engine
from tests.support.server import address_of, start_server

ROOT = Path(__file__).parents[2]
FOLDERS = ("src/holdfast", "activities", "workflows", "workers")
LINKS = {ROOT / "src/holdfast" / name: ROOT / name for name in ("activities", "workflows", "workers")}


def product_files() -> list[Path]:
    """Every module of the product, each once."""
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in found if not any(link in path.parents for link in LINKS))


def count_code() -> dict[str, int]:
    """Files, lines, functions, and those of them that are named by one bare word; the most crowded folder."""
    files = product_files()
    functions = [
        node.name
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__")
    ]
    one_word = [name for name in functions if "_" not in name.strip("_")]
    names = Counter(path.name for path in files if path.name != "__init__.py")
    return {
        "files": len(files),
        "lines": sum(len(path.read_text().splitlines()) for path in files),
        "functions": len(functions),
        "one_word_functions": len(one_word),
        "public_one_word_functions": sum(not name.startswith("_") for name in one_word),
        "names_of_several_files": sum(count > 1 for count in names.values()),
        "modules_in_the_fullest_folder": max(Counter(path.parent for path in files).values()),
    }


class Way:
    """The files that a profile function sees entered."""

    def __init__(self) -> None:
        self._product: dict[CodeType, str | None] = {}
        self._last: dict[int, str] = {}
        self.files: Counter[str] = Counter()

    def record(self, frame: FrameType, event: str, _: Any) -> None:
        """Called by the interpreter for every call and return."""
        if event != "call":
            return
        if frame.f_code not in self._product:
            self._product[frame.f_code] = _name_of(frame.f_code)
        name, thread = self._product[frame.f_code], threading.get_ident()
        if name and self._last.get(thread) != name:
            self._last[thread] = name
            self.files[name] += 1

    def start(self) -> None:
        """Watch this thread and every thread that starts from now on."""
        threading.setprofile(self.record)
        sys.setprofile(self.record)

    def clear(self) -> None:
        """Forget what was seen so far."""
        self._last.clear()
        self.files.clear()

    def stop(self) -> None:
        """Watch no more."""
        threading.setprofile(None)
        sys.setprofile(None)


def _name_of(code: CodeType) -> str | None:
    """The file of a function of the product, from the top of the repository; None for others and for imports."""
    path = Path(code.co_filename)
    if code.co_name == "<module>" or not path.is_relative_to(ROOT) or ".venv" in path.parts or "tests" in path.parts:
        return None
    return str(path.resolve().relative_to(ROOT))


async def follow_call() -> dict[str, Any]:
    """Run one approved shell command, and tell which files took part."""
    way = Way()
    way.start()
    with tempfile.TemporaryDirectory() as folder:
        server = await start_server(Path(folder) / "temporal.db")
        async with server, new_engine(address_of(server), Path(folder)) as engine, engine.worker():
            for number in range(2):  # the first one also loads what is loaded once
                way.clear()
                command = f"touch made-{number}"
                turn = await engine.start(TurnInput(batches=((build_request("shell", command=command),),)))
                await decide_all(engine.holdfast, turn)
                result = await turn.result()
                way_of_this = Counter(way.files)
                assert result.batches[0].responses[0].status == "success", result
    way.stop()
    files = sorted(way_of_this)
    return {
        "files_of_a_call": len(files),
        "returns_to_a_file": sum(count - 1 for count in way_of_this.values()),
        "files": files,
    }


def main() -> None:
    """Print both counts."""
    counted: dict[str, Any] = {**count_code(), **asyncio.run(follow_call())}
    if "--json" in sys.argv:
        print(json.dumps(counted, indent=2))
        return
    for name, value in counted.items():
        if isinstance(value, int):
            print(f"{name.replace('_', ' '):36} {value:>7,}")
    print("\nthe files of a call:", *counted["files"], sep="\n  ")


if __name__ == "__main__":
    main()
