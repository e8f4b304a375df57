"""The MCP server that every worker starts for itself, over its standard streams: the older protocol, line by line.

    python mcp_local.py OUTSIDE

It ends with its worker, in the middle of whatever it does.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from mcp_acts import KEY, SCHEMA, TOOLS, McpActs  # type: ignore[import-not-found]

PROTOCOL = "2025-06-18"
SPEAKING = threading.Lock()


def main(outside: Path) -> None:
    """Answer until there is no more to read."""
    acts = McpActs(outside)
    for line in sys.stdin.buffer:
        threading.Thread(target=answer, args=(acts, json.loads(line)), daemon=True).start()


def answer(acts: McpActs, message: dict[str, Any]) -> None:
    """One request; what is only told needs no answer."""
    if "id" not in message or "method" not in message:
        return
    params = message.get("params") or {}
    match message["method"]:
        case "initialize":
            about = {"name": "chaos", "version": "1"}
            say(message["id"], {"protocolVersion": PROTOCOL, "capabilities": {"tools": {}}, "serverInfo": about})
        case "tools/list":
            say(message["id"], {"tools": [{"name": name, "inputSchema": SCHEMA} for name in TOOLS]})
        case "tools/call":
            text = act(acts, params["name"], params["_meta"][KEY], **params["arguments"])
            say(message["id"], {"content": [{"type": "text", "text": text}]})
        case _:
            say(message["id"], {})


def act(acts: McpActs, tool: str, key: str, label: str, seconds: float) -> str:
    """The effect."""
    with acts.at_work(label):
        if acts.begin(tool, label, key):
            time.sleep(seconds)
        return str(acts.finish(tool, label, key))


def say(id: Any, result: dict[str, Any]) -> None:
    """Answer."""
    with SPEAKING:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
