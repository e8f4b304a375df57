"""A server that does what a test tells it, and much that none should: raw JSON-RPC, no library, nothing checked.

    python mcp_server.py FOLDER [--http PORT] [--ignore-end] [--never-ready]

What it lists is in FOLDER/tools.json: a list of tools, or {"pages": [[…], …], "cursors": [1, 0]}. It is read for every
request; SIGUSR1 has it say that the list has changed. Every call appends a line to FOLDER/effects. The argument `then`
of a call says what follows: see `answer`. Speaks 2025-06-18.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
SCHEMA = {"type": "object", "properties": {"then": {"type": "string"}, "n": {"type": "integer"}}}
GIANT = 40_000_000
waiting: dict[Any, threading.Event] = {}
answers: dict[Any, queue.SimpleQueue[Any]] = {}
"""Where goes what we are answered, by the id of what we asked; and that a call is to stop, by its own."""
speaking = threading.Lock()


def note(line: str) -> None:
    """One effect, on disk before anything else happens."""
    with open(FOLDER / "effects", "a") as file:
        file.write(f"{line}\n")
        file.flush()
        os.fsync(file.fileno())


def listed(cursor: str | None) -> dict[str, Any]:
    file = FOLDER / "tools.json"
    given = json.loads(file.read_text()) if file.exists() else [{"name": "act", "inputSchema": SCHEMA}]
    if isinstance(given, list):
        return {"tools": given}
    place = int(cursor or 0)
    following = given.get("cursors", [*range(1, len(given["pages"])), None])[place]
    page: dict[str, Any] = {"tools": given["pages"][place]}
    return page if following is None else {**page, "nextCursor": str(following)}


def wait_for(file: str) -> None:
    """Wait until a test has made this file."""
    for _ in range(600):
        if (FOLDER / file).exists():
            return
        time.sleep(0.05)


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}], **more}


class Failed(Exception):
    """A JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


def result(method: str, params: dict[str, Any], id: Any, send: Any) -> Any:
    """The result of a request; None when there is to be no answer."""
    if method == "initialize":
        about = {"name": "hostile", "version": "1"}
        capabilities = {"tools": {"listChanged": True}}
        return {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": about}
    if method == "tools/list":
        return listed(params.get("cursor"))
    if method == "tools/call":
        meta = params.get("_meta") or {}
        arguments = params.get("arguments") or {}
        note(f"{params['name']} {arguments.get('n', '')} {meta.get('holdfast/idempotency-key')}")
        return answer(arguments.get("then", "answer"), arguments, id, meta.get("progressToken"), send)
    if method == "ping":
        return {}
    raise Failed(-32601, "Method not found")


def answer(then: str, arguments: dict[str, Any], id: Any, token: Any, send: Any) -> Any:
    """What follows the effect."""
    match then:
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "die once":
            if not (FOLDER / "died").exists():
                (FOLDER / "died").touch()
                os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            waiting[id] = threading.Event()
            note("told to stop" if waiting[id].wait(60) else "forgotten")
            return None
        case "slow":
            time.sleep(arguments.get("seconds", 1))
        case "fail":
            return text("it went wrong", isError=True)
        case "error":
            raise Failed(-32000, "no such thing")
        case "nonsense":
            return {"nothing": "of the kind"}
        case "garbage":
            send(b"this is \xff\xfe no message\n[]\n{}\n" + b'{"jsonrpc": "2.0", "id": 999, "result": {}}\n')
        case "giant":
            return text("x" * GIANT)
        case "giant garbage":
            send(b"x" * GIANT + b"\n")
            return None
        case "raw":
            send(arguments["value"].replace("ID", str(id)).encode("latin-1") + b"\n")
            return None
        case "many parts":
            part = json.dumps({"type": "text", "text": "a"})
            send_raw(send, id, f'{{"content": [{",".join([part] * arguments["n"])}]}}')
            return None
        case "leave":
            subprocess.Popen(["sleep", "300"])  # it holds our streams
            os._exit(7)
        case "deaf":
            os.kill(os.getpid(), signal.SIGSTOP)
            threading.Event().wait()  # this thread may be stopped a little later than the others
        case "finish when told":
            waiting[id] = threading.Event()
            waiting[id].wait(60)
        case "pings":
            (FOLDER / "deaf").touch()
            for number in itertools.count():
                send_message(send, {"jsonrpc": "2.0", "id": f"p{number}", "method": "ping", "params": {}})
                if number == 200:
                    note("sent")
        case "other answers":
            part = json.dumps({"type": "text", "text": "a"})
            while True:
                send_raw(send, 999_999, f'{{"content": [{",".join([part] * 1_000_000)}]}}')
                note("sent")
        case "structured":
            return {"content": [], "structuredContent": arguments.get("value")}
        case "parts":
            return {"content": arguments["value"]}
        case "environment":
            return text(json.dumps(dict(os.environ)))
        case "child":
            child = subprocess.Popen(["sleep", "300"], start_new_session=True)
            return text(str(child.pid))
        case "flood":
            for number in range(2_000):
                params = {"progressToken": token, "progress": number, "message": f"\x1b[31mstep {number}"}
                send_message(send, {"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        case "ask":
            return asked(id, arguments["value"], send)
        case "ask secret":
            known = os.environ["THEIRS"]
            field = {"type": "string", "title": known, "enum": [known, "other"]}
            schema = {"type": "object", "properties": {f"the {known}": field}}
            return asked(id, {"message": f"Is it {known}?", "requestedSchema": schema}, send)
        case "ask and go on" | "ask and withdraw":
            name = ask(id, 0, arguments["value"], send)
            wait_for("go on")
            if then == "ask and withdraw":
                params = {"requestId": name}
                send_message(send, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
                wait_for("end")
        case "urls first":
            if not (FOLDER / "opened").exists():
                raise Failed(-32042, "not yet", {"elicitations": arguments["value"]})
        case "progress":
            params = {"progressToken": token, "progress": 1, "total": 4, "message": arguments.get("value", "begun")}
            send_message(send, {"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
            wait_for("go on")
    return text(f"did {arguments.get('n', 'it')}")


def ask(id: Any, number: int, params: Any, send: Any) -> str:
    """Ask the person at the other end, in the middle of a call."""
    name = f"ask-{id}-{number}"
    answers[name] = answers.setdefault(id, queue.SimpleQueue())
    send_message(send, {"jsonrpc": "2.0", "id": name, "method": "elicitation/create", "params": params})
    return name


def asked(id: Any, value: Any, send: Any) -> Any:
    """What is answered to one question, or to several that are asked at once; nothing once the call is to stop."""
    questions = value if isinstance(value, list) else [value]
    names = [ask(id, number, params, send) for number, params in enumerate(questions)]
    note("sent") if len(names) > 1_000 else None
    found: dict[str, Any] = {}
    while len(found) < len(names):
        found |= answers[id].get(timeout=60) or {"stop": True}
        if "stop" in found:
            note("told to stop")
            return None
    note(f"heard {json.dumps([found[name] for name in names])}")
    return text(json.dumps([found[name] for name in names]))


def handle(message: dict[str, Any], send: Any) -> None:
    id, method = message.get("id"), message.get("method", "")
    if method == "notifications/cancelled":
        if event := waiting.get(message["params"]["requestId"]):
            event.set()
        if heard := answers.get(message["params"]["requestId"]):
            heard.put(None)
        return
    if id in answers and not method:
        reply = message.get("result") or message.get("error")
        note(f"reply {json.dumps(reply)}")
        answers[id].put({id: reply})
        return
    if id is None or not method:
        return
    try:
        found = result(method, message.get("params") or {}, id, send)
    except Failed as error:
        told = {"code": error.code, "message": str(error)} | ({"data": error.data} if error.data else {})
        send_message(send, {"jsonrpc": "2.0", "id": id, "error": told})
        return
    if found is not None:
        send_message(send, {"jsonrpc": "2.0", "id": id, "result": found})


def send_raw(send: Any, id: Any, result: str) -> None:
    send(f'{{"jsonrpc": "2.0", "id": {id}, "result": {result}}}\n'.encode())


def send_message(send: Any, message: dict[str, Any]) -> None:
    send(json.dumps(message).encode() + b"\n")


def write(data: bytes) -> None:
    with speaking:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def over_stdio() -> None:
    changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    signal.signal(signal.SIGUSR1, lambda *_: send_message(write, changed))
    (FOLDER / "pid").write_text(str(os.getpid()))
    print("a server for tests", file=sys.stderr, flush=True)
    if "--never-ready" in sys.argv:
        never_ready()
    for line in sys.stdin.buffer:
        if (FOLDER / "deaf").exists():
            time.sleep(300)
        message = json.loads(line)
        threading.Thread(target=handle, args=(message, write), daemon=True).start()
    if "--ignore-end" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(300)


def never_ready() -> None:
    """Say nothing, and ignore being told to end, as a child does that has left. FOLDER/ending: we were told."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
    else:
        sys.stdin.buffer.read()
        (FOLDER / "ending").touch()
    time.sleep(300)


class Http(BaseHTTPRequestHandler):
    """One JSON answer per request; `then` may also be an HTTP status, or `cut`."""

    protocol_version = "HTTP/1.1"
    session = f"session-{os.getpid()}"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if (wanted := os.environ.get("WANTED_TOKEN")) and self.headers.get("authorization") != f"Bearer {wanted}":
            return self.reply(401, b"")
        if message.get("method") != "initialize" and self.headers.get("mcp-session-id") not in (None, self.session):
            return self.reply(404, b"")
        then = ((message.get("params") or {}).get("arguments") or {}).get("then", "")
        said: list[bytes] = []
        handle(message, said.append)
        if then.isdigit():
            return self.reply(int(then), b"so it is")
        if "id" not in message:
            return self.reply(202, b"")
        body = said[-1] if said else b""
        if then == "page":
            return self.reply(200, b"<html>", "text/html")
        if then == "cut":
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self.close_connection = True
            return None
        return self.reply(200, body)

    def do_GET(self) -> None:
        self.reply(405, b"")

    def do_DELETE(self) -> None:
        self.reply(200, b"")

    def reply(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("mcp-session-id", self.session)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        return


if __name__ == "__main__":
    if "--http" in sys.argv:
        port = int(sys.argv[sys.argv.index("--http") + 1])
        ThreadingHTTPServer(("127.0.0.1", port), Http).serve_forever()
    else:
        over_stdio()
