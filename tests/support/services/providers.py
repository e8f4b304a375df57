"""A server of models that speaks as OpenAI and as Anthropic do, does what a test wants, and is strict.

Each request takes the next of its acts: a reply, streamed as the real ones stream it, or a way to fail. What it is sent
is checked as strictly as the real ones do, and more: every call has one answer, in order, under an
id that is used once.
"""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route


@dataclass
class Act:
    """What a request is answered with."""

    text: str = ""
    calls: tuple[tuple[str, Any], ...] = ()
    """Names and arguments; a text is sent as it is, though it may be no JSON."""
    ids: tuple[str, ...] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    error: str = "It is broken"
    cut: int | None = None
    """End the stream after so many events, as if that were all."""
    drop: int | None = None
    """Break the connection after so many events."""
    wait: asyncio.Event | None = None
    """Before the last event."""
    tokens: tuple[int, int] = (10, 5)
    reason: str | None = None
    """Why it ends, in the words of the provider."""
    refusal: str = ""
    """What OpenAI's models say in the place of an answer."""
    together: bool = False
    """Begin all calls before any of them has its arguments, as no provider of a name does."""


class Provider:
    """The server, and what it was asked."""

    def __init__(self, *acts: Act) -> None:
        self.acts = list(acts)
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""

    async def openai(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        return await self._answer(request, _openai_problem, _openai_events)

    async def anthropic(self, request: Request) -> Response:
        """POST /v1/messages."""
        return await self._answer(request, _anthropic_problem, _anthropic_events)

    async def _answer(self, request: Request, problem_of: Any, events_of: Any) -> Response:
        body = await request.json()
        self.asked.append(body)
        self.headers.append(dict(request.headers))
        if problem := problem_of(body):
            return _failure(400, f"invalid request: {problem}")
        if not self.acts:
            return _failure(400, "the test has no further act")
        act = self.acts.pop(0)
        if act.status != 200:
            return _failure(act.status, act.error, act.headers)
        return StreamingResponse(_played(act, list(events_of(act))), media_type="text/event-stream")


async def _played(act: Act, events: list[str]) -> AsyncIterator[str]:
    for number, event in enumerate(events):
        if number == act.cut:
            return
        if number == act.drop:
            raise ConnectionResetError
        if act.wait and number == len(events) - 1:
            await act.wait.wait()
        yield event


def _failure(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    kinds = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error", 529: "overloaded_error"}
    kind = kinds.get(status, "invalid_request_error" if status < 500 else "api_error")
    error = {"type": kind, "message": message, "code": kind}
    return JSONResponse({"type": "error", "error": error}, status, headers)


def _openai_events(act: Act) -> Iterator[str]:
    about = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "fake-1"}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return f"data: {json.dumps({**about, 'choices': [choice]})}\n\n"

    yield chunk({"role": "assistant", "content": ""})
    for word in _words(act.text):
        yield chunk({"content": word})
    if act.refusal:
        yield chunk({"refusal": act.refusal})
    begun, rest = [], []
    for number, (name, arguments) in enumerate(act.calls):
        text = _text(arguments)
        call = {"index": number, "id": _id(act, number), "type": "function"}
        first = chunk({"tool_calls": [{**call, "function": {"name": name, "arguments": ""}}]})
        pieces = (text[: len(text) // 2], text[len(text) // 2 :])
        then = [chunk({"tool_calls": [{"index": number, "function": {"arguments": piece}}]}) for piece in pieces]
        begun += [first] if act.together else [first, *then]
        rest += then if act.together else []
    yield from (*begun, *rest)
    yield chunk({}, act.reason or ("tool_calls" if act.calls else "stop"))
    prompt, completion = act.tokens
    used = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    yield f"data: {json.dumps({**about, 'choices': [], 'usage': used})}\n\n"
    yield "data: [DONE]\n\n"


def _anthropic_events(act: Act) -> Iterator[str]:
    def event(kind: str, **fields: Any) -> str:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"

    prompt, completion = act.tokens
    message = {"id": "m", "type": "message", "role": "assistant", "model": "fake-1", "content": []}
    usage = {"input_tokens": prompt, "output_tokens": 0}
    yield event("message_start", message={**message, "stop_reason": None, "stop_sequence": None, "usage": usage})
    place = 0
    if act.text:
        yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        for word in _words(act.text):
            yield event("content_block_delta", index=0, delta={"type": "text_delta", "text": word})
        yield event("content_block_stop", index=0)
        place = 1
    for number, (name, arguments) in enumerate(act.calls):
        text, index = _text(arguments), place + number
        block = {"type": "tool_use", "id": _id(act, number), "name": name, "input": {}}
        yield event("content_block_start", index=index, content_block=block)
        for piece in (text[: len(text) // 2], text[len(text) // 2 :]):
            yield event("content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": piece})
        yield event("content_block_stop", index=index)
    reason = act.reason or ("tool_use" if act.calls else "end_turn")
    yield event(
        "message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage={"output_tokens": completion}
    )
    yield event("message_stop")


def _words(text: str) -> list[str]:
    return [f"{word} " for word in text.split(" ")[:-1]] + [text.split(" ")[-1]] if text else []


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _id(act: Act, number: int) -> str:
    return act.ids[number] if number < len(act.ids) else f"call_{number}"


def _openai_problem(body: dict[str, Any]) -> str | None:
    """What is wrong with a conversation."""
    open_calls: list[str] = []
    used: set[str] = set()
    if _blank(body):
        return "a text that says nothing"
    for message in body["messages"]:
        blocks = message["content"] if isinstance(message.get("content"), list) else []
        for block in blocks:
            if block["type"] != "text" and message["role"] != "user":
                return f"{block['type']} in a message of {message['role']}, which holds text alone"
            url = block["image_url"]["url"] if block["type"] == "image_url" else None
            head, _, data = (url or "data:image/png;base64,").removeprefix("data:").partition(";base64,")
            if url and (problem := _media_problem(head, data)):
                return problem
        if message["role"] == "tool":
            if not open_calls or message["tool_call_id"] != open_calls.pop(0):
                return f"an answer to {message['tool_call_id']} where none is awaited"
            continue
        if open_calls:
            return f"{message['role']} speaks, and {open_calls} are not answered"
        for call in message.get("tool_calls") or []:
            if call["id"] in used:
                return f"{call['id']} is used twice"
            try:
                fine = isinstance(json.loads(call["function"]["arguments"]), dict)
            except ValueError:
                fine = False
            if not fine:
                return f"arguments that are no object: {call['function']['arguments']!r}"
            used.add(call["id"])
            open_calls.append(call["id"])
    return f"{open_calls} are not answered" if open_calls else _tools_problem(body, "function")


def _blank(body: dict[str, Any]) -> bool:
    """Does anybody say nothing in it?"""
    for message in body["messages"]:
        content = message.get("content")
        blocks = content if isinstance(content, list) else [{"text": content}] if content is not None else []
        texts = [block.get("text", block.get("content")) for block in blocks]
        if any(isinstance(text, str) and not text.strip() for text in texts):
            return True
    return False


def _anthropic_problem(body: dict[str, Any]) -> str | None:
    open_calls: list[str] = []
    used: set[str] = set()
    if _blank(body):
        return "a text that says nothing"
    former = None
    for message in body["messages"]:
        blocks = message["content"] if isinstance(message["content"], list) else []
        if message["role"] == former:
            return f"{former} speaks twice in a row"
        former = message["role"]
        answers = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if former == "user" and answers != open_calls:
            return f"{open_calls} are to be answered, and {answers} were"
        open_calls = []
        inside = [one for block in blocks if isinstance(block.get("content"), list) for one in block["content"]]
        for block in [*blocks, *inside]:
            if block["type"] in ("image", "document"):
                source = block["source"]
                if problem := _media_problem(source["media_type"], source["data"]):
                    return problem
            if block["type"] == "tool_use":
                if block["id"] in used or not isinstance(block["input"], dict):
                    return f"{block['id']} is used twice, or its input is no object"
                used.add(block["id"])
                open_calls.append(block["id"])
    return f"{open_calls} are not answered" if open_calls else _tools_problem(body, None)


_BEGINNINGS = {"image/png": b"\x89PNG", "image/jpeg": b"\xff\xd8\xff", "application/pdf": b"%PDF-"}


def _media_problem(media_type: str, data: str) -> str | None:
    """What is wrong with an image or a document: the real ones look at what it is, and at how large."""
    if len(data) > 5_000_000:
        return "an image over 5 MB"
    if not base64.b64decode(data, validate=True).startswith(_BEGINNINGS.get(media_type, b"\0\0\0")):
        return f"what is not {media_type}"
    return None


def _tools_problem(body: dict[str, Any], within: str | None) -> str | None:
    tools = [tool[within] if within else tool for tool in body.get("tools") or []]
    names = [tool["name"] for tool in tools]
    if len(set(names)) != len(names):
        return "two tools have one name"
    bad = [name for name in names if not 0 < len(name) <= 64 or not name.replace("_", "").replace("-", "").isalnum()]
    return f"no names for tools: {bad}" if bad else None


@asynccontextmanager
async def provider(*acts: Act) -> AsyncIterator[Provider]:
    """A server on a port of its own."""
    made = Provider(*acts)
    routes = [
        Route("/v1/chat/completions", made.openai, methods=["POST"]),
        Route("/v1/messages", made.anthropic, methods=["POST"]),
    ]
    listening = socket.create_server(("127.0.0.1", 0))
    made.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="critical", lifespan="off"))
    serving = asyncio.create_task(server.serve([listening]))
    try:
        yield made
    finally:
        server.should_exit = True
        await serving
        listening.close()
