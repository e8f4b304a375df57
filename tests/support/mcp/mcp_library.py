"""A server with resources and prompts, some of them as none should be.

    python mcp_library.py FOLDER

What it lists more is a line in FOLDER/more. It tells what is in the variable SECRET of its environment.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
GIANT = 200_000


def resources(cursor: str | None) -> dict[str, Any]:
    page = int(cursor or 0)
    found: dict[str, Any] = {"resources": [{"uri": f"book://{page}", "name": f"Book {page}", "mimeType": "text/plain"}]}
    if page == 0:
        words = f"is \x1b[31m{os.environ.get('SECRET', 'red')}"
        found["resources"].append({"uri": "book://secret", "name": "Secret", "description": words, "size": 1234})
    return {**found, "nextCursor": str(page + 1)} if page < 2 else found


def read(uri: str) -> dict[str, Any]:
    match uri:
        case "book://0":
            return {"contents": [{"uri": uri, "text": "once upon a time"}]}
        case "book://secret":
            return {"contents": [{"uri": uri, "text": f"it is {os.environ.get('SECRET')}"}]}
        case "book://picture":
            return {"contents": [{"uri": uri, "blob": "iVBORw0KGgo=", "mimeType": "image/png"}]}
        case "book://giant":
            return {"contents": [{"uri": uri, "text": "x" * GIANT}]}
        case "book://nonsense":
            return {"contents": "no list"}
        case "book://die":
            if not (FOLDER / "died").exists():
                (FOLDER / "died").touch()
                os._exit(9)
            return {"contents": [{"uri": uri, "text": "alive"}]}
    raise LookupError(uri)


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            about = {"name": "library", "version": "1"}
            capabilities: dict[str, Any] = {"tools": {}, "resources": {"listChanged": True}, "prompts": {}}
            return {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": about}
        case "tools/list":
            more = FOLDER / "more"
            names = more.read_text().split() if more.exists() else []
            return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
        case "tools/call":
            return {"content": [{"type": "text", "text": f"the server's own {params['name']}"}]}
        case "resources/list":
            return {"resources": []} if (FOLDER / "bare").exists() else resources(params.get("cursor"))
        case "resources/templates/list" if not (FOLDER / "bare").exists():
            return {"resourceTemplates": [{"uriTemplate": "book://{title}", "name": "Any book"}]}
        case "resources/read":
            return read(params["uri"])
        case "prompts/list":
            arguments = [{"name": "who", "required": True}, {"name": "how"}]
            return {"prompts": [{"name": "greet", "description": "Say hello", "arguments": arguments}]}
        case "prompts/get":
            given = params.get("arguments") or {}
            image = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
            messages = [
                {"role": "user", "content": {"type": "text", "text": f"Greet {given['who']}"}},
                {"role": "assistant", "content": image},
            ]
            return {"messages": messages}
    raise LookupError(method)


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    try:
        reply["result"] = answer(message["method"], message.get("params") or {})
    except LookupError as error:
        reply["error"] = {"code": -32002, "message": f"nothing is called {error}"}
    print(json.dumps(reply), flush=True)
