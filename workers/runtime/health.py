"""The probes of a worker over HTTP: `GET /live` and `GET /ready`, for Kubernetes and others that run it.

A worker is alive if its event loop answers. It is ready if it polls, its server has answered lately, and it is not
shutting down. Nothing else is disclosed, so no token is needed; no HTTP library is used, so it costs a worker nothing.
Each connection gets one answer, within a time limit. The gateway has its own server, and uses `ServerProbe` too.

Why: docs/decisions/0029-containers-are-hosts.md.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client
from temporalio.service import RPCError

from holdfast.errors import HoldfastError

FRESH_SECONDS = 5.0
"""How long the last answer of the server is valid."""
ASK_SECONDS = 2.0
"""How long the server may take to answer."""
ARRIVE_SECONDS = 5.0
HEAD_LIMIT = 8_192
MAX_CONNECTIONS = 32
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


NO_ANSWER = "no answer from the server"


class ServerProbe:
    """Checks whether a Temporal server answers: one request at a time, however many callers wait."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._answered = float("-inf")
        self._question: asyncio.Task[bool] | None = None

    async def is_answering(self) -> bool:
        """Whether it has answered within FRESH_SECONDS, or answers now."""
        if time.monotonic() - self._answered < FRESH_SECONDS:
            return True
        if self._question is None or self._question.done():
            self._question = asyncio.create_task(self._ask_server())
        return await asyncio.shield(self._question)  # a cancelled caller must not cancel it for the others

    async def _ask_server(self) -> bool:
        with suppress(RPCError):
            limit = timedelta(seconds=ASK_SECONDS)
            await self._client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=limit)
            self._answered = time.monotonic()
            return True
        return False


class Health:
    """The state of a worker: set by the worker, read by probes."""

    def __init__(self) -> None:
        self._server: ServerProbe | None = None
        self._polling: Callable[[], bool] = lambda: False
        self._ending = False

    def set_polling(self, client: Client, polling: Callable[[], bool]) -> None:
        """The worker polls this server, while `polling` returns True."""
        self._server, self._polling = ServerProbe(client), polling

    def set_ending(self) -> None:
        """The worker shuts down."""
        self._ending = True

    async def describe_state(self) -> str:
        """`ok`, or why it is not ready."""
        if self._ending:
            return "ending"
        if self._server is None or not self._polling():
            return "starting" if self._server is None else "not polling"
        return "ok" if await self._server.is_answering() else NO_ANSWER


@asynccontextmanager
async def serve_health(health: Health, address: str) -> AsyncIterator[str]:
    """Answer probes at host:port until the end of the block; yields the URL. HoldfastError if it cannot listen."""
    host, _, port = address.rpartition(":")
    probes = _ProbeServer(health)
    try:
        server = await asyncio.start_server(probes.answer_probe, host.strip("[]"), int(port), limit=HEAD_LIMIT)
    except OSError as error:
        why = error.strerror or str(error)
        raise HoldfastError(f"cannot listen for probes at {address!r}: {why.lower()}; choose another address") from None
    try:
        yield f"http://{host}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


class _ProbeServer:
    def __init__(self, health: Health) -> None:
        self._health = health
        self._open = 0

    async def answer_probe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request of one connection."""
        self._open += 1
        try:
            if self._open <= MAX_CONNECTIONS:
                async with asyncio.timeout(ARRIVE_SECONDS + ASK_SECONDS):
                    writer.write(await self._build_response(await _read_head(reader)))
                    await writer.drain()
        except (OSError, TimeoutError):
            pass  # the client is gone, or too slow
        finally:
            self._open -= 1
            writer.close()

    async def _build_response(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.split(b" ")[0].partition(b"?")[0]
        if not rest:
            status, state = 400, "this is not HTTP"
        elif path not in (b"/live", b"/ready"):
            status, state = 404, "the paths are /live and /ready"
        elif method not in (b"GET", b"HEAD"):
            status, state = 405, "only GET and HEAD"
        else:
            state = "ok" if path == b"/live" else await self._health.describe_state()
            status = 200 if state == "ok" else 503
        return _format_answer(status, state, body=method != b"HEAD")


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    """The first line of a request; empty when its head is incomplete or too long."""
    with suppress(asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return (await reader.readuntil(b"\r\n\r\n")).splitlines()[0]
    return b""


def _format_answer(status: int, state: str, *, body: bool) -> bytes:
    content = json.dumps({"status": state}).encode() + b"\n"
    lines = (
        f"HTTP/1.1 {status} {_REASONS[status]}",
        "content-type: application/json",
        f"content-length: {len(content)}",
        "cache-control: no-store",
        *(("allow: GET, HEAD",) if status == 405 else ()),
        "connection: close",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (content if body else b"")
