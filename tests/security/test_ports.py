"""Every port that `holdfast up` opens, met as a web page and a rebound name would meet it (S45).

The ports are found in the sockets of its processes, so one that a later version opens is tried by itself.
"""

from __future__ import annotations

import asyncio
import base64
import http.server
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from playwright.async_api import async_playwright

from tests.cli.support import Home, call
from tests.support.programs import require_program

SECONDS = 5.0
FOREIGN = ("evil.example", "localhost.evil.example:8233", "127.0.0.1.evil.example")
API = "/api/v1/namespaces/default/workflows"
PATHS = ("/", "/v1/inbox", API, "/health", "/metrics", "/namespaces/default/workflows")


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, list[int]]]:
    """A running `holdfast up`, in which one turn waits, with the ports that its processes listen on."""
    home = Home(tmp_path_factory.mktemp("ports"))
    with home.up() as up:
        home.start("secret-turn", call("shell", command="touch ran"))
        home.listed("secret-turn")
        yield home, listening_ports(up.process.pid)


def listening_ports(pid: int) -> list[int]:
    """The TCP ports of a process and its descendants, whatever address they are bound to."""
    inodes: dict[str, int] = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":  # LISTEN
                inodes[fields[9]] = int(fields[1].rpartition(":")[2], 16)
    ports = set()
    for process in descendants(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            for descriptor in Path(f"/proc/{process}/fd").iterdir():
                with suppress(OSError):
                    inode = str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]")
                    ports |= {inodes[inode]} if inode in inodes else set()
    return sorted(ports)


def descendants(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for process in found:
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            found += [int(child) for child in children.read_text().split()]
    return found


def ask(port: int, method: str, path: str, *headers: str, body: str = "") -> bytes:
    """What the port answers to one HTTP/1.1 request; nothing when it does not speak HTTP or closes."""
    lines = [f"{method} {path} HTTP/1.1", *headers, "Connection: close", f"Content-Length: {len(body)}", "", body]
    answer = b""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        connection.settimeout(SECONDS)
        connection.sendall("\r\n".join(lines).encode())
        while len(answer) < 1_000_000 and (part := connection.recv(65_536)):
            answer += part
    return answer


def served(answer: bytes) -> bool:
    """Did the port serve the request? Errors, redirects to nowhere and other protocols are no service."""
    return answer.startswith(b"HTTP/1.") and answer.split(b" ", 2)[1][:1] in b"23"


def test_S45_no_port_of_up_serves_a_foreign_host_or_origin(opened: tuple[Home, list[int]]) -> None:
    home, ports = opened
    assert len(ports) >= 3, "the server's and the gateway's are not found"
    for port in ports:
        for path in PATHS:
            tries: list[tuple[str, ...]] = [(f"Host: {name}",) for name in FOREIGN]
            tries += [(f"Host: {name}", f"Origin: http://{name}") for name in FOREIGN]
            tries += [(f"Host: 127.0.0.1:{port}", "Origin: http://evil.example")]
            tries += [(f"Host: localhost:{port}", "Origin: null")]
            for method in ("GET", "POST"):
                for headers in tries:
                    answer = ask(port, method, path, *headers, body="" if method == "GET" else "{}")
                    if served(answer):
                        # The metrics page of Temporal's dev server cannot be switched off. It tells counts and no ids.
                        assert path == "/metrics", (port, method, path, headers, answer[:200])
                        assert b"secret-turn" not in answer
                        assert str(home.workspace).encode() not in answer


@contextmanager
def foreign_site(page: str) -> Iterator[str]:
    """A web site of somebody else, on a name that the browser takes for another origin."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://evil.localhost:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(SECONDS)


def start_and_approve(home: Home) -> list[tuple[str, dict[str, object]]]:
    """The two requests by which a page started and approved a command through Temporal's HTTP API."""
    turn = {"batches": [[call("shell", command="touch ran")]]}
    metadata = {"encoding": base64.b64encode(b"json/plain").decode()}
    payload = {"metadata": metadata, "data": base64.b64encode(json.dumps(turn).encode()).decode()}
    waiting = home.listed("secret-turn")[0]
    decision = {"approval_id": waiting["approval_id"], "digest": waiting["digest"], "outcome": "yes"}
    decided = {"metadata": metadata, "data": base64.b64encode(json.dumps(decision).encode()).decode()}
    queue, kind = {"name": "holdfast"}, {"name": "holdfast.turn"}
    return [
        (f"{API}/from-a-page", {"workflowType": kind, "taskQueue": queue, "input": {"payloads": [payload]}}),
        (f"{API}/secret-turn/signal/decide", {"input": {"payloads": [decided]}}),
    ]


async def test_S22_a_page_in_a_browser_starts_and_approves_nothing(opened: tuple[Home, list[int]]) -> None:
    home, ports = opened
    chromium = require_program("chromium")
    requests = [
        (f"http://{host}:{port}{prefix}{path}", json.dumps(body))
        for port in ports
        for host in ("127.0.0.1", "localhost")
        for prefix in ("", "/v1")
        for path, body in start_and_approve(home)
    ]
    page = f"""<script>
      const requests = {json.dumps(requests)};
      Promise.allSettled(requests.map(([url, body]) => fetch(url,
        {{method: "POST", mode: "no-cors", headers: {{"Content-Type": "text/plain"}}, body,
          signal: AbortSignal.timeout({SECONDS * 1000})}})
      )).then(() => document.title = "done")</script>"""
    with foreign_site(page) as url:
        async with async_playwright() as playwright, asyncio.timeout(60):
            browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            tab = await browser.new_page()
            await tab.goto(url)
            await tab.wait_for_function("document.title === 'done'", timeout=50_000)
            await browser.close()
    assert not (home.workspace / "ran").exists()
    assert home.json("turn", "show", "secret-turn")["approvals"], "the decision counted"
    assert home.run("turn", "show", "from-a-page").returncode != 0, "a page started a turn"


def test_the_embedded_server_that_answers_http_would_be_found(tmp_path: Path) -> None:
    """The control: the same questions find the open door of a stock dev server."""
    port, web, api = (_free_port() for _ in range(3))
    temporal = str(Path(sys.executable).with_name("temporal"))
    ports = ["--port", str(port), "--ui-port", str(web), "--http-port", str(api)]
    log = (tmp_path / "log").open("wb")
    with log, subprocess.Popen([temporal, "server", "start-dev", *ports], stdout=log, stderr=log) as server:
        try:
            foreign = ("Host: evil.example", "Origin: http://evil.example")
            for number in (web, api):
                for _ in range(300):
                    if served(ask(number, "GET", API, *foreign)):
                        break
                    threading.Event().wait(0.1)
                else:
                    pytest.fail(f"nothing is served on port {number}")
            assert {port, web, api} <= set(listening_ports(server.pid))
        finally:
            server.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
