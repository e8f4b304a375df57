"""A server at an address that does what none should: raw HTTP, one mode each, nothing checked.

    python mcp_hostile.py FOLDER PORT MODE

Every call appends a line to FOLDER/effects, and every request one to FOLDER/requests: when, which, where. While there
is a file FOLDER/healed it behaves. Speaks 2025-06-18.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FOLDER, PORT, MODE = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
FOREVER = 300
BOMB = gzip.compress(b":\n" * 20_000_000) if MODE == "bomb beside calls" else b""
RESULT = {"content": [{"type": "text", "text": "did it"}]}


def note(file: str, line: str) -> None:
    with open(FOLDER / file, "a") as opened:
        opened.write(f"{line}\n")


def mode(*names: str) -> bool:
    return MODE in names and not (FOLDER / "healed").exists()


class Hostile(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        note("requests", f"{time.monotonic():.3f} POST {self.path}")
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if mode("moved") and self.path == "/mcp":
            return self.reply(307, location="/mcp/")
        if "id" not in message:
            if mode("cancel hangs") and message["method"] == "notifications/cancelled":
                time.sleep(FOREVER)
            return self.reply(202)
        match message["method"]:
            case "initialize" if mode("never ready"):
                self.stream(**{"mcp-session-id": "s"})
                time.sleep(FOREVER)
            case "initialize":
                about = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
                self.answer(message, {**about, "serverInfo": {"name": "hostile", "version": "1"}})
            case "tools/list":
                self.answer(message, {"tools": [{"name": "act", "inputSchema": {"type": "object"}}]})
            case "tools/call":
                note("effects", "act")
                self.call(message)
            case _:
                self.reply(200, {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}})
        return None

    def call(self, message: dict[str, Any]) -> None:
        arguments = message["params"].get("arguments") or {}
        error = {"code": -32000, "message": "paid, but the checkout session was not closed"}
        if arguments.get("hang"):
            time.sleep(FOREVER)
        match MODE:
            case "session in its words":
                self.reply(400, {"jsonrpc": "2.0", "id": message["id"], "error": error})
            case "gateway":
                self.reply(504, {"jsonrpc": "2.0", "id": message["id"], "error": error})
            case "redirects calls":
                self.reply(307, location=self.path)
            case "many parts" | "many parts as events":
                part = b'{"type": "text", "text": "a"}'
                body = b'{"jsonrpc": "2.0", "id": %d, "result": {"content": [%s]}}'
                body = body % (message["id"], b",".join([part] * 1_000_000))
                if MODE == "many parts":
                    return self.reply(200, body)
                self.stream()
                self.wfile.write(b"data: " + body + b"\n\n")
            case _:
                self.answer(message, RESULT)
        return None

    def do_GET(self) -> None:
        note("requests", f"{time.monotonic():.3f} GET {self.path}")
        if mode("bomb beside calls"):
            self.stream(**{"content-encoding": "gzip"})
            self.wfile.write(BOMB)
            self.wfile.flush()
            note("requests", "sent")
            time.sleep(FOREVER)
        elif mode("ends its stream"):
            self.stream()
            self.wfile.write(b"retry: 0\ndata: \n\n")
        else:
            self.reply(405)

    def do_DELETE(self) -> None:
        note("requests", f"{time.monotonic():.3f} DELETE {self.path}")
        if mode("never ready"):
            time.sleep(FOREVER)
        if mode("endless farewell"):
            self.stream("text/plain")
            while True:
                self.wfile.write(b"x" * 1_000_000)
                note("farewell", "x")
        self.reply(200)

    def answer(self, message: dict[str, Any], result: Any) -> None:
        self.reply(200, {"jsonrpc": "2.0", "id": message["id"], "result": result}, **{"mcp-session-id": "s"})

    def reply(self, status: int, body: Any = None, **headers: str) -> None:
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def stream(self, kind: str = "text/event-stream", **headers: str) -> None:
        self.close_connection = True
        self.send_response(200)
        for name, value in {"content-type": kind, "connection": "close", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.flush()

    def log_message(self, format: str, *arguments: Any) -> None:
        return


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        return


if __name__ == "__main__":
    Server(("127.0.0.1", PORT), Hostile).serve_forever()
