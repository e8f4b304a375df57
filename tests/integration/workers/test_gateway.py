"""The HTTP endpoint over real connections: closed to strangers, exact about decisions, unmoved by garbage."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Holdfast, Run, Turn, TurnInput, TurnView
from holdfast.client.signing_keys import Signer
from holdfast.config.schema import ApproverSettings, GatewaySettings
from holdfast.domain.approvals.approval import Confirmation
from holdfast.domain.approvals.signing import format_public_key
from holdfast.domain.turn.approval_view import ApprovalView, InboxView
from holdfast.testing import FakeTool, build_request, wait_until
from holdfast.workers.gateway import auth, body_limits, serve
from holdfast.workers.gateway.auth import is_loopback
from holdfast.workers.gateway.decision_body import DecisionBody, parse_decision
from holdfast.workers.gateway.responses import Problem
from holdfast.workers.gateway.serve import open_listener, run_gateway
from holdfast.workers.gateway.tokens import Role, TokenFile
from tests.support.engine import Engine, new_engine
from tests.support.server import address_of, start_server
from tests.support.waiting import asked, listed, waiting

SECONDS = 30.0
BOUND = httpx2.Timeout(SECONDS)


async def _echo(arguments: dict[str, Any], run: Run) -> str:
    return f"echo {arguments.get('say')}"


ASK = FakeTool("ask", _echo, asks=True)


class Endpoint:
    """A running gateway, and the ways to it."""

    def __init__(self, engine: Engine, url: str) -> None:
        self.url = url
        self.tokens = TokenFile(engine.settings.tokens_file)
        self.token = self.tokens.create("ada")[0]

    def client(self, token: str | None = None, **headers: str) -> httpx2.AsyncClient:
        """A client with a token."""
        sent = {"Authorization": f"Bearer {token or self.token}", **headers}
        return httpx2.AsyncClient(base_url=self.url, headers=sent, timeout=BOUND)

    async def get(self, path: str, **parameters: str | int) -> httpx2.Response:
        """One question, with a token."""
        async with self.client() as client:
            return await client.get(path, params=parameters)

    async def decide(self, approval: str, body: Any, token: str | None = None) -> httpx2.Response:
        """One decision."""
        async with self.client(token) as client:
            return await client.post(f"/v1/approvals/{quote(approval)}", json=body)

    async def raw(self, data: bytes, *, end: bool = True) -> bytes:
        """What comes back for exactly these bytes, until the connection ends."""
        where = urlsplit(self.url)
        async with asyncio.timeout(SECONDS):
            reader, writer = await asyncio.open_connection(where.hostname, where.port)
            try:
                writer.write(data)
                if end:
                    writer.write_eof()
                return await reader.read()
            except ConnectionError:
                return b""
            finally:
                writer.close()


@asynccontextmanager
async def serving(
    engine: Engine, holdfast: Holdfast | None = None, *, host: str = "127.0.0.1", names: tuple[str, ...] = ()
) -> AsyncIterator[Endpoint]:
    """A gateway on a free port, until the end of the block."""
    stop = asyncio.Event()
    listener = open_listener(host, 0)
    settings = replace(engine.settings, gateway=GatewaySettings(host=host, names=names))
    url = listener.url.replace("0.0.0.0", "127.0.0.1")
    running = asyncio.create_task(
        run_gateway(holdfast or engine.holdfast, settings, listener, host=host, say=lambda _: None, stop=stop)
    )
    try:
        yield Endpoint(engine, url)
    finally:
        stop.set()
        async with asyncio.timeout(SECONDS):
            await running


@pytest.fixture
async def endpoint(engine: Engine) -> AsyncIterator[Endpoint]:
    async with serving(engine) as made:
        yield made


async def _asked(engine: Engine, calls: int = 1, turn_id: str | None = None) -> tuple[Turn, TurnView]:
    batch = tuple(build_request("ask", say=n) for n in range(calls))
    turn = await engine.holdfast.start(TurnInput(batches=(batch,)), turn_id=turn_id)
    return turn, await wait_until(lambda: waiting(turn, calls))


def _yes(item: ApprovalView, **more: Any) -> dict[str, Any]:
    return {"outcome": "yes", "digest": item.digest, **more}


def _error(response: httpx2.Response) -> tuple[int, str]:
    """Status and code; every error is JSON in the one shape, and holds nothing of our inside."""
    assert response.headers["content-type"] == "application/json"
    assert set(response.json()) == {"error"}
    error = response.json()["error"]
    assert set(error) == {"code", "message"}
    assert "Traceback" not in response.text
    assert "access-control-allow-origin" not in response.headers
    return response.status_code, error["code"]


# What it does


async def test_S41_S45_an_approval_is_listed_shown_and_decided_in_the_name_of_the_token(
    engine: Engine, endpoint: Endpoint
) -> None:
    async with engine.worker(ASK):
        turn, view = await _asked(engine)
        [item] = view.approvals
        await listed(engine.holdfast, turn.id)
        inbox = await endpoint.get("/v1/inbox", turn=turn.id)
        assert inbox.status_code == 200
        assert inbox.json()["total"] == 1
        assert [(one["approval_id"], one["digest"]) for one in inbox.json()["approvals"]] == [
            (item.approval_id, item.digest)
        ]
        shown = await endpoint.get(f"/v1/approvals/{item.approval_id}")
        assert shown.json()["digest"] == item.digest
        assert shown.json()["exact_arguments"] == {"say": 0}
        done = await endpoint.decide(item.approval_id, _yes(item, note="fine", decision_id="mine"))
        assert done.status_code == 200
        told = done.json()
        assert (told["approval_id"], told["call"], told["counted"]) == (item.approval_id, "b1c1", True)
        assert told["status"] in ("scheduled", "executing", "success")
        assert (await turn.result()).responses[0].text == "echo 0"
        call = await turn.fetch_call("b1c1")
        assert call.decision is not None
        assert (call.decision.by, call.decision.note) == ("ada", "fine")
        ended = await endpoint.get(f"/v1/turns/{turn.id}")
        assert ended.json()["state"] == "ended"
        assert ended.json()["batch"]["calls"][0]["decided_by"] == "ada"
        await listed(engine.holdfast, turn.id, count=0)
        assert (await endpoint.get("/v1/inbox", turn=turn.id)).json() == {"approvals": [], "total": 0, "unread": {}}


@pytest.mark.parametrize(
    "name", ["a/b/c", "50% off", "per%2Fcent", "sp ace?#&=+;", "snow☃", "two\nlines", "../up", "//"]
)
async def test_S41_ids_of_any_characters_are_addressed(name: str, engine: Engine, endpoint: Endpoint) -> None:
    async with engine.worker(ASK):
        turn, view = await _asked(engine, turn_id=f"{engine.queue}/{name}")
        [item] = view.approvals
        async with endpoint.client() as client:
            for safe in ("/", "") if ".." not in name else ("",):  # clients go up by themselves
                path = quote(item.approval_id, safe=safe)
                shown = await client.get(httpx2.URL(f"{endpoint.url}/v1/approvals/{path}"))
                assert (shown.status_code, shown.json().get("approval_id")) == (200, item.approval_id)
            standing = await client.get(f"{endpoint.url}/v1/turns/{quote(turn.id, safe='')}")
            assert standing.json()["id"] == turn.id
            done = await client.post(f"{endpoint.url}/v1/approvals/{quote(item.approval_id, safe='')}", json=_yes(item))
        assert done.status_code == 200
        assert (await turn.result()).status == "completed"


async def test_S41_an_item_is_shown_whole_and_hides_nothing(engine: Engine, endpoint: Endpoint) -> None:
    command = "echo '" + "x" * 60_000 + "\u202e\x1b[2K'"
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request("shell", command=command),),)))
        [item] = (await wait_until(lambda: waiting(turn))).approvals
        assert item.cut
        shown = await endpoint.get(f"/v1/approvals/{item.approval_id}")
        assert shown.content.isascii(), "nothing in it does anything to a terminal"
        found = shown.json()
        assert (found["cut"], found["digest"], found["tool"]) == (False, item.digest, "shell")
        assert "x" * 60_000 + "⟨U+202E⟩␛[2K" in found["command"]
        assert found["exact_arguments"]["command"] == command
        await listed(engine.holdfast, turn.id)
        assert len((await endpoint.get("/v1/inbox")).content) < 60_000
        assert (await endpoint.decide(item.approval_id, {"outcome": "no", "digest": item.digest})).status_code == 200
        await turn.result()


async def test_S19_S21_refusing_answering_and_stopping_work_as_elsewhere(engine: Engine, endpoint: Endpoint) -> None:
    async with engine.worker(ASK):
        turn, view = await _asked(engine, calls=3)
        first, second, third = view.approvals
        answers = (
            (first, {"outcome": "respond", "content": "42"}, "success"),
            (second, {"outcome": "no", "note": "not today"}, "cancelled"),
            (third, {"outcome": "cancel", "stop_turn": True}, "cancelled"),
        )
        for item, body, status in answers:
            done = await endpoint.decide(item.approval_id, {**body, "digest": item.digest})
            assert (done.status_code, done.json()["status"]) == (200, status)
        result = await turn.result()
    assert [response.status for response in result.responses] == ["success", "cancelled", "cancelled"]
    assert result.responses[0].text == "42"
    assert result.status == "stopped"


FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "x" * 2_000},
        "born": {"type": "string", "format": "date"},
        "seats": {"type": "integer", "default": 2},
    },
    "required": ["name"],
}
URL = "https://example.org/pay"


async def _question(arguments: dict[str, Any], run: Run) -> str:
    """Asks in the middle of its run: for an address to be opened, or with a form."""
    one_word: Any = {"urls": (URL,), "options": ("done",), "other": False}
    more = one_word if arguments.get("url") else {"form": FORM}
    answer = await run.ask(Confirmation(kind="question", title="Who?", question="Who?", server="air", **more))
    return f"{answer.action} {answer.fields}"


async def test_S39_S41_a_form_is_shown_and_answered_over_http(engine: Engine, endpoint: Endpoint) -> None:
    async with engine.worker(FakeTool("book", _question, questions=True)):
        turn = await engine.start(TurnInput(batches=((build_request("book"), build_request("book")),)))
        for call, content in (("b1c1", {"name": "Ana", "seats": 3}), ("b1c2", json.dumps({"name": "Ana", "seats": 3}))):
            await wait_until(lambda call=call: asked(turn, call, 1))  # type: ignore[misc]
            await listed(engine.holdfast, f"{turn.id}/{call}/1")
            [item] = (await endpoint.get("/v1/inbox", turn=turn.id)).json()["approvals"]
            told = {name: item[name] for name in ("kind", "tool", "server", "question", "form", "fields", "cut")}
            assert told == {"kind": "question", "tool": "book", "server": "air", "question": "Who?", "form": None,
                            "fields": 3, "cut": True}  # fmt: skip
            shown = (await endpoint.get(f"/v1/approvals/{item['approval_id']}")).json()
            assert (shown["form"], shown["fields"], shown["cut"]) == (FORM, 3, False)
            body = {"outcome": "respond", "digest": item["digest"]}
            refused = await endpoint.decide(item["approval_id"], {**body, "content": {"born": "May"}})
            assert _error(refused) == (409, "does_not_fit")
            assert "'name' is missing; 'born' must be a date, as 2026-05-31" in refused.json()["error"]["message"]
            done = await endpoint.decide(item["approval_id"], {**body, "content": content})
            assert (done.status_code, done.json()["status"]) == (200, "scheduled")
        responses = (await turn.result()).responses
    assert {one.text for one in responses} == {"accept {'name': 'Ana', 'seats': 3}"}


async def test_S39_only_done_is_consent_to_an_address_over_http(engine: Engine, endpoint: Endpoint) -> None:
    async with engine.worker(FakeTool("book", _question, questions=True)):
        turn = await engine.start(TurnInput(batches=((build_request("book", url=True),),)))
        [item] = (await wait_until(lambda: waiting(turn))).approvals
        body = {"outcome": "respond", "digest": item.digest}
        for content in ("no", "1", {"done": True}):
            refused = await endpoint.decide(item.approval_id, {**body, "content": content})
            assert _error(refused) == (409, "not_an_option")
            assert "`done`; to give no answer, use `holdfast deny`" in refused.json()["error"]["message"]
        assert (await endpoint.decide(item.approval_id, {**body, "content": "Done"})).status_code == 200
        assert (await turn.result()).responses[0].text == "accept {}"


async def test_S25_a_modified_call_is_asked_about_again_under_a_new_revision(
    engine: Engine, endpoint: Endpoint
) -> None:
    async with engine.worker(ASK):
        turn, view = await _asked(engine)
        [item] = view.approvals
        body = {"outcome": "modify", "digest": item.digest, "arguments": {"say": "other"}}
        assert (await endpoint.decide(item.approval_id, body)).status_code == 200
        again = await wait_until(lambda: asked(turn, "b1c1", 2))
        old = await endpoint.get(f"/v1/approvals/{item.approval_id}")
        assert _error(old) == (404, "old_revision")
        new = (await endpoint.get(f"/v1/approvals/{turn.id}/b1c1/2")).json()
        assert new["exact_arguments"] == {"say": "other"}
        assert new["changed_by"] == ["ada"]
        assert (await endpoint.decide(new["approval_id"], _yes(again.approvals[0]))).status_code == 200
        assert "echo other" in (await turn.result()).responses[0].text


async def test_S24_a_standing_answer_covers_what_was_offered(engine: Engine, endpoint: Endpoint) -> None:
    calls = tuple(build_request("shell", command=command) for command in ("echo one", "echo one", "echo two"))
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=(calls,)))
        view = await wait_until(lambda: waiting(turn, 3))
        item = (await endpoint.get(f"/v1/approvals/{view.approvals[0].approval_id}")).json()
        offer = next(one for one in item["offers"] if one["outcome"] == "proceed_always")
        body = {"outcome": "proceed_always", "digest": item["digest"], "scope": offer["scope"], "uses": 5}
        done = await endpoint.decide(item["approval_id"], body)
        assert done.status_code == 200, done.text
        assert done.json()["grant"]
        left = await wait_until(lambda: _only(turn, 1))
        assert [one.command for one in left.approvals] == ["echo two"]
        await turn.cancel()
        await turn.result()


async def _only(turn: Turn, count: int) -> TurnView | None:
    view = await turn.fetch_view(live=False)
    return view if len(view.approvals) == count else None


# Who comes in

EVERYWHERE = (
    "/",
    "/v1/inbox",
    "/v1/turns/x",
    "/v1/approvals/x/b1c1/1",
    "/nonsense",
    "/health/",
    "/HEALTH",
    "//health",
    "/ready/",
)


async def test_S45_without_a_token_everything_is_closed_but_whether_it_lives(endpoint: Endpoint) -> None:
    async with httpx2.AsyncClient(base_url=endpoint.url, timeout=BOUND) as stranger:
        for path in EVERYWHERE:
            for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"):
                refused = await stranger.request(method, f"{endpoint.url}{path}")
                assert refused.status_code == 401, (method, path)
                assert refused.headers["www-authenticate"] == 'Bearer realm="holdfast"'
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert _error(await stranger.request(method, "/health")) == (401, "unauthorized")
        for path in ("/health", "/ready"):
            healthy = await stranger.get(path)
            assert (healthy.status_code, healthy.json()) == (200, {"status": "ok"})


async def test_S45_only_a_right_token_in_the_one_header_lets_in(endpoint: Endpoint) -> None:
    token = endpoint.token
    wrong: list[dict[str, str]] = [
        {"Authorization": f"Bearer {token}x"},
        {"Authorization": f"Bearer {token[:-1]}"},
        {"Authorization": f"Bearer {token.swapcase()}"},
        {"Authorization": "Bearer"},
        {"Authorization": token},
        {"Authorization": f"Basic {token}"},
        {"Authorization": f"Bearer {token}, Bearer {token}"},
        {"Authorization": "Bearer \xff\xfe"},
        {"Cookie": f"token={token}; Authorization=Bearer {token}"},
        {"X-Api-Key": token},
        {"Proxy-Authorization": f"Bearer {token}"},
    ]
    async with httpx2.AsyncClient(base_url=endpoint.url, timeout=BOUND) as stranger:
        for headers in wrong:
            coded = {name.encode(): value.encode("latin-1") for name, value in headers.items()}
            assert _error(await stranger.get("/v1/inbox", headers=coded)) == (401, "unauthorized"), headers
        for url in (f"/v1/inbox?token={token}", f"/v1/inbox?access_token={token}", f"/v1/turns/{token}"):
            refused = await stranger.get(url)
            assert _error(refused) == (401, "unauthorized"), "a URL is never read for a token"
            assert token not in refused.text
        for scheme in ("Bearer", "bearer", "BEARER"):
            served = await stranger.get("/v1/inbox", headers={"Authorization": f"{scheme} {token}"})
            assert served.status_code == 200
        where = urlsplit(endpoint.url)
        twice = f"GET /v1/inbox HTTP/1.1\r\nHost: {where.netloc}\r\nConnection: close\r\n" + 2 * (
            f"Authorization: Bearer {token}\r\n"
        )
        assert (await endpoint.raw(f"{twice}\r\n".encode(), end=False)).startswith(b"HTTP/1.1 401 ")


async def test_S45_a_revoked_or_expired_token_stops_at_once_on_a_connection_that_is_open(endpoint: Endpoint) -> None:
    token, _ = endpoint.tokens.create("ben")
    brief, kept = endpoint.tokens.create("cy", lasts=timedelta(seconds=1))
    assert kept.expires is not None
    async with endpoint.client(token) as client:
        assert (await client.get("/v1/inbox")).status_code == 200
        endpoint.tokens.revoke("ben")
        assert _error(await client.get("/v1/inbox")) == (401, "unauthorized")

    async def expired() -> bool:
        async with endpoint.client(brief) as client:
            answer = await client.get("/v1/inbox")
        return answer.status_code == 401 and _error(answer) == (401, "token_expired")

    await wait_until(expired)
    assert (await endpoint.get("/v1/inbox")).status_code == 200


async def test_S45_a_viewer_may_look_and_not_decide(engine: Engine, endpoint: Endpoint) -> None:
    token, _ = endpoint.tokens.create("eve", Role.VIEWER)
    async with engine.worker(ASK):
        turn, view = await _asked(engine)
        [item] = view.approvals
        async with endpoint.client(token) as client:
            assert (await client.get(f"/v1/approvals/{item.approval_id}")).status_code == 200
        assert _error(await endpoint.decide(item.approval_id, _yes(item), token)) == (403, "viewer")
        assert (await turn.fetch_view(live=False)).approvals == view.approvals
        await turn.cancel()
        await turn.result()


async def test_S45_a_damaged_file_of_tokens_closes_the_endpoint_until_it_is_right(endpoint: Endpoint) -> None:
    file = endpoint.tokens.file
    good = file.read_bytes()
    for broken in (b"", b"{", b'{"tokens": [{}]}'):
        file.write_bytes(broken)
        closed = await endpoint.get("/v1/inbox")
        assert _error(closed) == (503, "closed")
        assert str(file) not in closed.text, "strangers read this too"
    file.write_bytes(good)
    assert (await endpoint.get("/v1/inbox")).status_code == 200
    file.chmod(0o666)
    assert _error(await endpoint.get("/v1/inbox")) == (503, "closed")
    file.unlink()
    assert _error(await endpoint.get("/v1/inbox")) == (401, "unauthorized")


async def test_S45_a_request_for_another_host_is_refused_whatever_its_token(engine: Engine, endpoint: Endpoint) -> None:
    port = urlsplit(endpoint.url).port
    async with endpoint.client() as client:
        hostile = [
            "evil.example",
            f"evil.example:{port}",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "0.0.0.0",
        ]
        hostile += ["10.0.0.7", "[::2]", "127.0.0.1@evil.example", "evil.example/127.0.0.1", "127.0.0.1:x", "a b", ","]
        for host in hostile:
            for path in ("/v1/inbox", "/health"):
                answer = await client.get(path, headers={"Host": host})
                assert answer.status_code in (400, 421), host
        for host in ("localhost", f"LOCALHOST:{port}", "127.0.0.1", f"127.0.0.1:{port}", "[::1]", "localhost."):
            assert (await client.get("/v1/inbox", headers={"Host": host})).status_code == 200, host
    old = f"GET /v1/inbox HTTP/1.0\r\nAuthorization: Bearer {endpoint.token}\r\n\r\n".encode()
    assert b"wrong_host" in await endpoint.raw(old, end=False)
    engine.settings.tokens_file.unlink()
    async with serving(engine, host="0.0.0.0", names=("approvals.example",)) as wide, wide.client() as client:
        for host, status in (("approvals.example:443", 200), ("10.0.0.7:80", 200), ("evil.example", 421)):
            assert (await client.get("/v1/inbox", headers={"Host": host})).status_code == status
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "10.0.0.7", "a.b")] == [
        *(True,) * 3,
        *(False,) * 4,
    ]


# What is not taken

BODIES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "not_json"),
    "garbage": (b"\x00\xff\xfe{", "not_json"),
    "half": (b'{"outcome": "yes"', "not_json"),
    "two": (b'{"outcome": "yes", "digest": "DIGEST"} {}', "not_json"),
    "a list": (b'[{"outcome": "yes", "digest": "DIGEST"}]', "bad_input"),
    "text": (b'"yes"', "bad_input"),
    "null": (b"null", "bad_input"),
    "an empty object": (b"{}", "bad_input"),
    "no digest": (b'{"outcome": "yes"}', "bad_input"),
    "null for a digest": (b'{"outcome": "yes", "digest": null}', "bad_input"),
    "an empty digest": (b'{"outcome": "yes", "digest": ""}', "bad_input"),
    "no outcome": (b'{"digest": "DIGEST"}', "bad_input"),
    "another outcome": (b'{"outcome": "maybe", "digest": "DIGEST"}', "bad_input"),
    "a list of outcomes": (b'{"outcome": ["yes"], "digest": "DIGEST"}', "bad_input"),
    "an unknown field": (b'{"outcome": "yes", "digest": "DIGEST", "surprise": 1}', "bad_input"),
    "somebody else": (b'{"outcome": "yes", "digest": "DIGEST", "by": "root"}', "bad_input"),
    "nobody": (b'{"outcome": "yes", "digest": "DIGEST", "by": null}', "bad_input"),
    "another time": (b'{"outcome": "yes", "digest": "DIGEST", "at": "2020-01-01T00:00:00Z"}', "bad_input"),
    "a signer": (b'{"outcome": "yes", "digest": "DIGEST", "signer": "x"}', "bad_input"),
    "a signature": (b'{"outcome": "yes", "digest": "DIGEST", "signature": "x"}', "bad_input"),
    "another address": (b'{"outcome": "yes", "digest": "DIGEST", "approval_id": "x/b1c1/1"}', "bad_input"),
    "the same twice": (b'{"outcome": "no", "outcome": "yes", "digest": "DIGEST"}', "bad_input"),
    "text for a flag": (b'{"outcome": "no", "digest": "DIGEST", "stop_turn": "yes"}', "bad_input"),
    "a number for a flag": (b'{"outcome": "no", "digest": "DIGEST", "stop_turn": 1}', "bad_input"),
    "a stop that lets run": (b'{"outcome": "yes", "digest": "DIGEST", "stop_turn": true}', "bad_input"),
    "text for a number": (b'{"outcome": "yes_always", "digest": "DIGEST", "uses": "5"}', "bad_input"),
    "no uses": (b'{"outcome": "yes_always", "digest": "DIGEST", "uses": 0}', "bad_input"),
    "a time without a zone": (b'{"outcome": "yes", "digest": "DIGEST", "expires": "2030-01-01T00:00:00"}', "bad_input"),
    "a scope of its own": (b'{"outcome": "yes_always", "digest": "DIGEST", "scope": {"x": 1}}', "bad_input"),
    "no number": (b'{"outcome": "modify", "digest": "DIGEST", "arguments": {"say": NaN}}', "bad_input"),
    "a number without end": (b'{"outcome": "modify", "digest": "DIGEST", "arguments": {"say": 1e999}}', "bad_input"),
    "many digits": (
        b'{"outcome": "modify", "digest": "DIGEST", "arguments": {"a": ' + b"9" * 5_000 + b"}}",
        "bad_input",
    ),
    "half a character": (b'{"outcome": "yes", "digest": "DIGEST", "note": "\\ud800"}', "bad_input"),
    "too long a note": (b'{"outcome": "yes", "digest": "DIGEST", "note": "' + b"x" * 20_001 + b'"}', "bad_input"),
    "too deep": (b'{"outcome": "yes", "digest": "DIGEST", "arguments": ' + b'{"a":' * 100_000, "bad_input"),
    "deep lists": (b"[" * 500_000, "bad_input"),
}


async def test_S22_garbage_is_refused_with_what_is_wrong_and_changes_nothing(
    engine: Engine, endpoint: Endpoint
) -> None:
    async with engine.worker(ASK):
        turn, view = await _asked(engine)
        [item] = view.approvals
        before = await engine.recorded(turn)
        async with endpoint.client() as client:
            for name, (body, code) in BODIES.items():
                answer = await client.post(
                    f"/v1/approvals/{item.approval_id}",
                    content=body.replace(b"DIGEST", item.digest.encode()),
                    headers={"Content-Type": "application/json"},
                )
                assert _error(answer) == (400, code), (name, answer.text)
                assert len(answer.json()["error"]["message"]) > 20, name
        assert await engine.recorded(turn) == before
        assert (await endpoint.decide(item.approval_id, _yes(item))).status_code == 200
        await turn.result()


async def test_only_json_as_it_is_is_read(endpoint: Endpoint) -> None:
    body = b'{"outcome": "yes", "digest": "x"}'
    async with endpoint.client() as client:
        for headers in (
            {},
            {"Content-Type": "text/plain"},
            {"Content-Type": "application/x-www-form-urlencoded"},
            {"Content-Type": "multipart/form-data; boundary=x"},
            {"Content-Type": "application/jsonp"},
            {"Content-Type": "text/plain; application/json"},
            {"Content-Type": "application/json", "Content-Encoding": "gzip"},
        ):
            packed = gzip.compress(body) if "Content-Encoding" in headers else body
            answer = await client.post("/v1/approvals/x/b1c1/1", content=packed, headers=headers)
            assert _error(answer) == (415, "not_json"), headers
        typed = {"Content-Type": "Application/JSON; charset=utf-8"}
        answer = await client.post("/v1/approvals/no-such-turn/b1c1/1", content=body, headers=typed)
        assert _error(answer) == (404, "turn_not_found")


async def test_a_body_over_the_limit_is_refused_however_it_is_sent(endpoint: Endpoint) -> None:
    large = b'{"note": "' + b"x" * 4_000_000 + b'"}'

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield large[:100_000]

    typed = {"Content-Type": "application/json"}
    async with endpoint.client() as client:
        for content in (large, pieces()):
            answer = await client.post("/v1/approvals/x/b1c1/1", content=content, headers=typed)
            assert _error(answer) == (413, "too_large")
            assert answer.headers["connection"] == "close"
    async with httpx2.AsyncClient(base_url=endpoint.url, timeout=BOUND) as stranger:
        answer = await stranger.post("/v1/approvals/x/b1c1/1", content=large, headers=typed)
        assert _error(answer) == (401, "unauthorized"), "it is told so, though it still sends"
    host = urlsplit(endpoint.url).netloc
    head = f"POST /v1/approvals/x/b1c1/1 HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {endpoint.token}\r\n"
    head += "Content-Type: application/json\r\n"
    patient = await endpoint.raw(
        f"{head}Content-Length: 9999999999\r\nExpect: 100-continue\r\n\r\n".encode(), end=False
    )
    assert patient.startswith(b"HTTP/1.1 413 "), "without being asked to go on"
    cut_off = await endpoint.raw(f'{head}Content-Length: 100\r\n\r\n{{"outcome"'.encode())
    assert b"200" not in cut_off[:20]
    assert (await endpoint.get("/v1/inbox")).status_code == 200


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", 404),
        ("/v1", 404),
        ("/v1/", 404),
        ("/v1/inbox/", 404),
        ("/v1/inbox/../inbox", 404),
        ("/v1/INBOX", 404),
        ("//v1/inbox", 404),
        ("/v1/turns", 404),
        ("/v1/turns/", 404),
        ("/v1/turns/..", 404),
        ("/v1/turns/%2e%2e%2f%2e%2e%2fetc%2fpasswd", 404),
        ("/v1/turns/%00", 404),
        ("/v1/turns/" + "x" * 5_000, 404),
        ("/v1/turns/%ff%fe", 400),
        ("/v1/turns/%zz", 404),
        ("/v1/approvals/", 404),
        ("/v1/approvals/x", 400),
        ("/v1/approvals/x/b1c1", 400),
        ("/v1/approvals/x/b1c1/one", 400),
        ("/v1/approvals/x/b1c1/-1", 400),
        ("/v1/approvals/x/b1c1/1/", 400),
        ("/v1/approvals//b1c1/1", 400),
        ("/v1/approvals/no-such-turn/b1c1/1", 404),
        ("/v1/approvals/x/b1c1/99999999999999999999", 400),
        ("/v1/inbox?limit=0", 400),
        ("/v1/inbox?limit=1001", 400),
        ("/v1/inbox?limit=-1", 400),
        ("/v1/inbox?limit=ten", 400),
        ("/v1/inbox?limit=%C2%B2", 400),
        ("/v1/inbox?limit=1&limit=2", 400),
        ("/v1/inbox?token=x", 400),
        ("/v1/turns/x?y=1", 400),
        ("/health/../v1/inbox", 404),
        ("/docs", 404),
        ("/openapi.json", 404),
    ],
)
async def test_a_path_that_leads_nowhere_is_told_so(path: str, expected: int, endpoint: Endpoint) -> None:
    host = urlsplit(endpoint.url).netloc
    head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {endpoint.token}\r\nConnection: close\r\n\r\n"
    head_of_answer, _, body = (await endpoint.raw(head.encode(), end=False)).partition(b"\r\n\r\n")
    assert head_of_answer.startswith(f"HTTP/1.1 {expected} ".encode()), (head_of_answer, body)
    assert set(json.loads(body)) == {"error"}


async def test_a_method_that_is_not_served_is_told_which_are(endpoint: Endpoint) -> None:
    async with endpoint.client() as client:
        for method, path, allowed in (
            ("POST", "/v1/inbox", {"GET", "HEAD"}),
            ("DELETE", "/v1/turns/x", {"GET", "HEAD"}),
            ("PUT", "/v1/approvals/x/b1c1/1", {"GET", "HEAD", "POST"}),
            ("OPTIONS", "/v1/inbox", {"GET", "HEAD"}),
        ):
            foreign = await client.request(method, path, headers={"Origin": "https://evil.example"})
            assert _error(foreign) == (403, "foreign_origin")
            answer = await client.request(method, path)
            assert _error(answer) == (405, "method_not_allowed")
            assert set(answer.headers["allow"].split(", ")) == allowed


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
        b"hello\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
        b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /",
        b"POST /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /health HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /v1/inbox HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n",
    ],
)
async def test_bytes_that_are_no_request_for_us_get_no_service_and_harm_nobody(data: bytes, endpoint: Endpoint) -> None:
    answer = await endpoint.raw(data)
    assert not answer or answer.split(b" ")[1] in (b"400", b"401", b"421"), answer
    assert b"Traceback" not in answer
    assert (await endpoint.get("/v1/inbox")).status_code == 200


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.text() | st.floats(), st.lists).map(json.dumps).map(str.encode)
)
def test_any_bytes_are_a_decision_or_a_problem(data: bytes) -> None:
    with pytest.raises(Problem) as refusal:
        parse_decision(data)
    assert refusal.value.status == 400


@given(
    st.dictionaries(
        st.sampled_from([*DecisionBody.model_fields, "by", "at", "x"]),
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(max_size=5)
        | st.just({"tool": "x"})
        | st.just("2030-01-01T00:00:00Z"),
    )
)
def test_any_fields_are_a_decision_or_a_problem(fields: dict[str, Any]) -> None:
    with suppress(Problem):
        said = parse_decision(json.dumps(fields).encode())
        assert {"outcome", "digest"} <= set(fields) <= set(DecisionBody.model_fields)
        assert set(said.details) == set(fields) - {"outcome", "digest", "decision_id"}


# Decisions that do not count


async def test_S22_a_decision_that_does_not_count_is_refused_with_its_code(engine: Engine, endpoint: Endpoint) -> None:
    async with engine.worker(ASK):
        turn, view = await _asked(engine, calls=2)
        item, other = view.approvals
        before = await engine.recorded(turn)
        for approval, body, expected in (
            (item.approval_id, _yes(other), (409, "other_digest")),
            (f"{turn.id}/b1c1/0", _yes(item), (409, "old_revision")),
            (f"{turn.id}/b1c9/1", _yes(item), (409, "unknown_approval")),
            (item.approval_id, {"outcome": "respond", "digest": item.digest}, (409, "no_content")),
            ("no-such-turn/b1c1/1", _yes(item), (404, "turn_not_found")),
        ):
            assert _error(await endpoint.decide(approval, body)) == expected
        assert await engine.recorded(turn) == before
        for one in (item, other):
            assert (await endpoint.decide(one.approval_id, _yes(one))).status_code == 200
        await turn.result()
        assert _error(await endpoint.decide(item.approval_id, _yes(item)))[0] == 409
        assert _error(await endpoint.get(f"/v1/approvals/{item.approval_id}")) == (404, "not_waiting")
        assert _error(await endpoint.get(f"/v1/approvals/{turn.id}/b1c9/1")) == (404, "unknown_approval")


async def test_S23_of_twenty_decisions_at_once_exactly_one_counts(engine: Engine, endpoint: Endpoint) -> None:
    tokens = [endpoint.tokens.create(f"user-{number}")[0] for number in range(20)]
    async with engine.worker(ASK):
        turn = await engine.start(TurnInput(batches=((build_request("ask", say=0),),), keep_open=True))
        [item] = (await wait_until(lambda: waiting(turn))).approvals
        answers = await asyncio.gather(
            *(
                endpoint.decide(item.approval_id, {"outcome": outcome, "digest": item.digest}, token)
                for token, outcome in zip(tokens, ("yes", "no") * 10, strict=True)
            )
        )
        counted = [place for place, answer in enumerate(answers) if answer.status_code == 200]
        assert len(counted) == 1
        refused = [answer for place, answer in enumerate(answers) if place not in counted]
        assert {_error(answer)[0] for answer in refused} == {409}
        await turn.finish()
        result = await turn.result()
        call = await turn.fetch_call("b1c1")
    assert call.decision is not None
    assert call.decision.by == f"user-{counted[0]}"
    assert result.responses[0].status == ("success" if counted[0] % 2 == 0 else "cancelled")


async def test_S23_a_repeated_decision_counts_once_and_nobody_elses_is_taken_for_it(
    engine: Engine, endpoint: Endpoint
) -> None:
    ben, _ = endpoint.tokens.create("ben")
    async with engine.worker(ASK):
        turn, view = await _asked(engine, calls=2)
        item, other = view.approvals
        body = _yes(item, decision_id="1")
        answers = await asyncio.gather(*(endpoint.decide(item.approval_id, body) for _ in range(5)))
        assert {answer.status_code for answer in answers} == {200}
        assert _error(await endpoint.decide(item.approval_id, {**body, "outcome": "no"}, ben)) == (409, "not_waiting")
        moves = [event.after for event in (await turn.fetch_events()).events if event.call == "b1c1"]
        assert moves.count("scheduled") == 1
        await endpoint.decide(other.approval_id, _yes(other, decision_id="1"))
        assert [response.status for response in (await turn.result()).responses] == ["success", "success"]


async def test_S22_with_keys_the_gateway_vouches_for_those_it_knows(server_address: str, tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    approvers = (
        ApproverSettings(name="gateway", key=format_public_key(key.public_key()), vouches=True),
        ApproverSettings(name="ada", roles=("lead",)),
    )
    async with new_engine(server_address, tmp_path) as engine:
        engine.settings = replace(engine.settings, approvers=approvers)
        signing = Holdfast(engine.client, task_queue=engine.queue, signer=Signer("gateway", key, vouches=True))
        async with engine.worker(ASK):
            turn, view = await _asked(engine)
            [item] = view.approvals
            async with serving(engine) as unsigned:
                assert _error(await unsigned.decide(item.approval_id, _yes(item))) == (409, "unsigned")
            engine.settings.tokens_file.unlink()
            async with serving(engine, signing) as endpoint:
                stranger, _ = endpoint.tokens.create("mallory")
                assert _error(await endpoint.decide(item.approval_id, _yes(item), stranger)) == (409, "other_name")
                assert (await endpoint.decide(item.approval_id, _yes(item))).status_code == 200
            assert (await turn.result()).responses[0].status == "success"
            call = await turn.fetch_call("b1c1")
    assert call.decision is not None
    assert call.decision.by == "ada"


# When something is missing


async def test_S23_without_a_worker_a_decision_is_left_and_looking_closer_has_to_wait(
    engine: Engine, endpoint: Endpoint
) -> None:
    async with engine.worker(ASK):
        turn, view = await _asked(engine)
    [item] = view.approvals
    await listed(engine.holdfast, turn.id)
    inbox = await endpoint.get("/v1/inbox", turn=turn.id)
    assert [one["approval_id"] for one in inbox.json()["approvals"]] == [item.approval_id]
    left, shown, standing = await asyncio.gather(
        endpoint.decide(item.approval_id, _yes(item)),
        endpoint.get(f"/v1/approvals/{item.approval_id}"),
        endpoint.get(f"/v1/turns/{turn.id}"),
    )
    assert left.status_code == 202
    assert (left.json()["counted"], left.json()["status"], left.json()["call"]) == (None, None, "b1c1")
    assert (_error(shown), _error(standing)) == ((503, "no_worker"), (503, "no_worker"))
    async with engine.worker(ASK):
        assert (await turn.result()).responses[0].status == "success"
        call = await turn.fetch_call("b1c1")
    assert call.decision is not None
    assert call.decision.by == "ada"


async def test_without_a_server_it_says_so(tmp_path: Path) -> None:
    async with await start_server(tmp_path / "temporal.db") as server:
        address = address_of(server)
        async with new_engine(address, tmp_path / "engine") as engine, serving(engine) as endpoint:
            assert (await endpoint.get("/v1/inbox")).status_code == 200
            await server.shutdown()
            answers = await asyncio.gather(
                endpoint.get("/v1/inbox"),
                endpoint.get("/v1/turns/x"),
                endpoint.decide("x/b1c1/1", {"outcome": "yes", "digest": "x"}),
            )
            assert {_error(answer)[0] for answer in answers} == {503}
            assert (await endpoint.get("/health")).status_code == 200


async def test_S41_two_hundred_approvals_are_listed(engine: Engine, endpoint: Endpoint) -> None:
    async with engine.worker(ASK):
        one, _ = await _asked(engine, calls=150)
        other, _ = await _asked(engine, calls=50)
        everything = await wait_until(lambda: _mine(endpoint, one, other))
        assert len(everything) == len(set(everything)) == 200
        some = (await endpoint.get("/v1/inbox", turn=one.id, limit=10)).json()
        assert (len(some["approvals"]), some["total"]) == (10, 150)
        for turn in (one, other):
            await turn.cancel()
            await turn.result()


async def _mine(endpoint: Endpoint, *turns: Turn) -> list[str] | None:
    inbox = (await endpoint.get("/v1/inbox")).json()["approvals"]
    ids = [item["approval_id"] for item in inbox]
    mine = [one for one in ids if any(one.startswith(f"{turn.id}/") for turn in turns)]
    return mine if len(mine) >= 200 else None


class Broken(Holdfast):
    """Something in it fails that nobody thought of."""

    async def fetch_inbox(self) -> InboxView:
        """Never answers."""
        raise ZeroDivisionError("the secret inside")


async def test_an_error_that_nobody_expected_is_a_sentence_to_the_client_and_a_line_in_the_log(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(engine, Broken(engine.client)) as endpoint:
        answer = await endpoint.get("/v1/inbox")
    assert _error(answer) == (500, "internal")
    assert "secret" not in answer.text
    assert "the secret inside" in caplog.text


class Slow(Holdfast):
    """Takes for ever."""

    async def fetch_inbox(self) -> InboxView:
        """Never answers."""
        await asyncio.Event().wait()
        return InboxView()


async def test_a_request_that_takes_too_long_is_given_up_and_too_many_at_once_are_sent_away(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "SECONDS", 1.0)
    monkeypatch.setattr(auth, "AT_ONCE", 3)
    async with serving(engine, Slow(engine.client)) as endpoint:
        answers = await asyncio.gather(*(endpoint.get("/v1/inbox") for _ in range(5)))
        codes = sorted(_error(answer) for answer in answers)
        assert codes == [(503, "busy")] * 2 + [(503, "too_slow")] * 3
        assert _error(await endpoint.get("/v1/nonsense")) == (404, "not_found"), "there is room again"


async def test_S45_probes_that_take_their_time_hold_no_place_of_those_who_may_come_in(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has no token can hold a probe open for as long as its body is waited for."""
    monkeypatch.setattr(auth, "AT_ONCE", 3)
    monkeypatch.setattr(body_limits, "SECONDS", SECONDS)
    probe = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n\r\n"
    async with serving(engine) as endpoint:
        held = [asyncio.create_task(endpoint.raw(probe, end=False)) for _ in range(5)]
        try:
            for _ in range(5):
                assert (await endpoint.get("/v1/inbox")).status_code == 200
                assert (await endpoint.get("/health")).status_code == 200
            assert not any(task.done() for task in held)
        finally:
            for task in held:
                task.cancel()
            await asyncio.gather(*held, return_exceptions=True)


@pytest.mark.parametrize("begun", [b"", b"GET /health HT", b"POST /v1/approvals/x HTTP/1.1\r\nContent-Le"])
async def test_whoever_does_not_come_to_the_point_is_hung_up_on(
    begun: bytes, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "ARRIVE_SECONDS", 1)
    async with serving(engine) as endpoint:
        assert await endpoint.raw(begun, end=False) == b""
        assert (await endpoint.get("/v1/inbox")).status_code == 200


async def test_S45_the_log_tells_who_asked_what_and_no_secret(
    engine: Engine, endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with endpoint.client() as client:
        await client.get("/v1/inbox", params={"turn": "private-query"})
        await client.get(f"/v1/turns/{endpoint.token}%0Aforged")
        await client.get("/v1/turns/x", params={"token": endpoint.token})
    assert "GET /v1/inbox 200 by ada" in caplog.text
    assert "GET /v1/turns/hf_…␊forged 404 by ada" in caplog.text
    ours = "\n".join(record.getMessage() for record in caplog.records if not record.name.startswith("httpx"))
    assert endpoint.token.removeprefix("hf_") not in ours
    assert "private-query" not in ours
