"""Questions of MCP servers in the middle of a call, in both protocols, in real turns (S39)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast import DecisionRefused, Response, Turn, TurnInput
from holdfast.config.schema import McpServerSettings
from holdfast.domain.calls.tool import Effect
from holdfast.domain.turn.approval_view import ApprovalView
from holdfast.testing import build_request, wait_until
from tests.support.engine import Engine
from tests.support.mcp.mcp_servers import free_port, http_server, node_server, ours, servers
from tests.support.processes import hurried_worker
from tests.support.waiting import listed, waiting

ACT = "s__act"
MODERN = Path(__file__).parents[2] / "support" / "mcp" / "mcp_modern.py"
READS = {"act": Effect.READ}
NAME = {"name": {"type": "string", "minLength": 2}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where our servers read and write."""
    made = tmp_path / "server"
    made.mkdir()
    return made


def effects(folder: Path) -> list[str]:
    """What our server did and heard, line by line."""
    file = folder / "effects"
    return file.read_text().splitlines() if file.exists() else []


def heard(folder: Path) -> list[Any]:
    """What our server was answered, in order."""
    return [json.loads(line.removeprefix("reply ")) for line in effects(folder) if line.startswith("reply ")]


def use(engine: Engine, **by_name: McpServerSettings) -> None:
    """Workers from now on have these servers."""
    engine.settings = replace(engine.settings, mcp=servers(**by_name))


def form(message: str = "Who are you?", fields: Any = NAME, *required: str) -> Any:
    """What a server asks for."""
    schema = {"type": "object", "properties": fields, "required": list(required)}
    return {"message": message, "requestedSchema": schema}


async def started(engine: Engine, then: str, value: Any, **more: Any) -> Turn:
    """A turn with one call of our server."""
    return await engine.start(TurnInput(batches=((build_request(ACT, then=then, value=value),),), **more))


async def question(turn: Turn, words: str = "", *, but: str = "") -> ApprovalView:
    """What is asked in these words, once it is; not the one that was asked before."""

    async def there() -> ApprovalView | None:
        view = await waiting(turn)
        asked = [one for one in view.approvals if one.kind == "question"] if view else []
        return next((one for one in asked if words in (one.question or "") and one.approval_id != but), None)

    found: ApprovalView = await wait_until(there, 30)
    return found


async def approve(engine: Engine, turn: Turn) -> None:
    """Let the one call run that waits."""
    [asked] = (await wait_until(lambda: waiting(turn))).approvals
    assert asked.kind == "mcp"
    await engine.holdfast.approve(asked.approval_id, digest=asked.digest)


async def answer(engine: Engine, asked: ApprovalView, content: Any) -> None:
    """A person answers."""
    text = content if isinstance(content, str) else json.dumps(content)
    await engine.holdfast.decide(asked.approval_id, "respond", digest=asked.digest, content=text)


async def response_of(turn: Turn) -> Response:
    """That of the one call."""
    [response] = (await turn.result()).responses
    return response


# The older protocol: the call waits, on standard streams, with a server of ours


async def test_S39_a_question_is_shown_with_its_form_and_the_answer_goes_back(engine: Engine, folder: Path) -> None:
    use(engine, s=ours(str(folder)))
    fields = {**NAME, "age": {"type": "integer", "minimum": 0}, "colour": {"type": "string", "enum": ["red", "blue"]}}
    async with engine.worker():
        turn = await started(engine, "ask", form("Who are you?", fields, "name"))
        await approve(engine, turn)
        asked = await question(turn)
        assert (asked.server, asked.title) == ("s", "The MCP server 's' asks: Who are you?")
        assert asked.form == form("", fields, "name")["requestedSchema"]
        with pytest.raises(DecisionRefused) as refused:
            await answer(engine, asked, {"age": -1, "colour": "green", "more": 1})
        for words in ("'name' is missing", "at least 0", "one of 'red', 'blue'", "'more' is not a field of the form"):
            assert words in str(refused.value)
        assert (await question(turn)).approval_id == asked.approval_id  # it still waits
        assert not heard(folder)
        await answer(engine, asked, {"name": "Ana", "age": 7})
        response = await response_of(turn)
    assert json.loads(response.text) == [{"action": "accept", "content": {"name": "Ana", "age": 7}}]
    assert len(effects(folder)) == 3  # it was called once, and answered once


async def test_S39_whoever_will_not_say_and_nobody_at_all_are_told_to_the_server(engine: Engine, folder: Path) -> None:
    use(engine, s=ours(str(folder), effects=READS))
    async with engine.worker():
        turn = await started(engine, "ask", form())
        asked = await question(turn)
        await engine.holdfast.deny(asked.approval_id, digest=asked.digest)
        declined = await response_of(turn)
        nobody = await response_of(await started(engine, "ask", form(), interactive=False))
    assert json.loads(declined.text) == [{"action": "decline"}]
    assert json.loads(nobody.text) == [{"action": "cancel"}]


MANY: Any = {f"field{number}": {"type": "string"} for number in range(1_000)}
REFUSED: dict[str, tuple[Any, str]] = {
    "nested": (form("?", {"a": {"type": "object", "properties": NAME}}), "asked for 'a', which is no single value"),
    "numbers": (form("?", {"a": {"type": "array", "items": {"type": "integer"}}}), "which is no single value"),
    "long form": (form("?", {"a": {"type": "string", "description": "x" * 60_000}}), "over 50,000 characters"),
    "long address": ({"mode": "url", "message": "?", "url": "https://" + "x" * 9_000, "elicitationId": "1"}, "4,000"),
    "nothing": ({}, "Invalid request parameters"),
    "no form": ({"message": "?", "requestedSchema": "form"}, "Invalid request parameters"),
}  # fmt: skip


async def test_S39_what_nobody_can_be_asked_is_an_error_for_the_server_alone(engine: Engine, folder: Path) -> None:
    use(engine, s=ours(str(folder), effects=READS))
    async with engine.worker():
        for params, words in REFUSED.values():
            [told] = json.loads((await response_of(await started(engine, "ask", params))).text)
            assert told["code"] == -32602
            assert words in told["message"]
        turn = await started(engine, "ask", form())
        await answer(engine, await question(turn), "Ana")  # of one field, its value is enough
        assert '"Ana"' in (await response_of(turn)).text


async def test_S32_a_hostile_question_is_shown_harmless_and_bounded(engine: Engine, folder: Path) -> None:
    use(engine, s=ours(str(folder), effects=READS))
    async with engine.worker():
        turn = await started(engine, "ask", form("\x1b]0;owned\x07\x1b[31mred\r\n" + "y" * 1_000_000, MANY))
        asked = await question(turn)
        assert asked.cut
        shown = asked.title + (asked.question or "")
        assert len(shown) < 5_000
        assert not {"\x1b", "\x07", "\r"} & set(shown)
        whole = (await turn.fetch_call("b1c1")).confirmation
        assert whole is not None
        assert len(whole.question or "") <= 10_000
        assert asked.form is not None
        with pytest.raises(DecisionRefused, match="'other' is not a field of the form"):
            await answer(engine, asked, {"other": "1"})
        await answer(engine, asked, {"field999": "\x1b[31mAna"})
        assert heard_content(await response_of(turn)) == {"field999": "\x1b[31mAna"}  # theirs, as they said it
        no_fields = await started(engine, "ask", form("Go on?", {}))
        asked = await question(no_fields, "Go on?")
        assert (asked.options, asked.form) == (("yes",), None)
        await answer(engine, asked, "yes")
        assert heard_content(await response_of(no_fields)) == {}


def heard_content(response: Response) -> Any:
    """What was accepted in the one answer of a call."""
    [told] = json.loads(response.text)
    assert told["action"] == "accept"
    return told.get("content")


async def test_S39_an_address_is_shown_and_answered_and_never_opened(engine: Engine, folder: Path) -> None:
    """S39: nothing listens at the address; whoever opened it would find out, and the call would not end so."""
    address = f"http://127.0.0.1:{free_port()}/pay?id=1"
    use(engine, s=ours(str(folder), effects=READS))
    async with engine.worker():
        turn = await started(engine, "ask", {"mode": "url", "message": "Pay", "url": address, "elicitationId": "1"})
        asked = await question(turn, "Pay")
        assert (asked.urls, asked.form) == ((address,), None)
        assert "Open this yourself if you trust it, then answer `done`: " + address in (asked.question or "")
        await answer(engine, asked, "done")
        assert json.loads((await response_of(turn)).text) == [{"action": "accept"}]


async def test_S39_only_done_is_consent_to_an_address_and_only_yes_to_a_form_without_fields(
    engine: Engine, folder: Path
) -> None:
    address = {"mode": "url", "message": "Pay", "url": "https://example.org", "elicitationId": "1"}
    use(engine, s=ours(str(folder), effects=READS))
    async with engine.worker():
        for params, word, said in ((address, "done", " DONE\n"), (form("Go on?", {}), "yes", "Yes")):
            turn = await started(engine, "ask", params)
            asked = await question(turn)
            before = await engine.recorded(turn)
            for other in ("no", "1", "not yet", f"{word}?", "{}"):
                with pytest.raises(DecisionRefused, match=f"the only answer to this is `{word}`.*`holdfast deny`"):
                    await answer(engine, asked, other)
            assert await engine.recorded(turn) == before
            body = {"approval_id": asked.approval_id, "digest": asked.digest, "outcome": "respond", "content": "no"}
            await engine.client.get_workflow_handle(turn.id).signal("decide", body)
            assert (await question(turn)).approval_id == asked.approval_id
            await answer(engine, asked, said)
            assert json.loads((await response_of(turn)).text)[0]["action"] == "accept"


async def test_S39_a_field_that_an_answer_leaves_out_has_its_default_for_the_server(
    engine: Engine, folder: Path
) -> None:
    fields: Any = {**NAME, "seats": {"type": "integer", "default": 2}, "meal": {"type": "string", "default": "egg"}}
    use(engine, s=ours(str(folder), effects=READS))
    async with engine.worker():
        turn = await started(engine, "ask", form("Who?", fields, "name"))
        asked = await question(turn)
        assert (asked.fields, asked.server, asked.tool) == (3, "s", ACT)
        await answer(engine, asked, {"name": "Ana", "meal": None})
        assert heard_content(await response_of(turn)) == {"name": "Ana", "seats": 2}


async def test_S39_addresses_to_open_first_are_questions_before_the_call_is_made_again(
    engine: Engine, folder: Path
) -> None:
    first = [{"mode": "url", "message": f"Log in to {name}", "url": f"https://{name}.example", "elicitationId": name}
             for name in ("one", "two")]  # fmt: skip
    use(engine, s=ours(str(folder)))
    async with engine.worker():
        turn = await started(engine, "urls first", first)
        await approve(engine, turn)
        await answer(engine, await question(turn, "Log in to one"), "done")
        asked = await question(turn, "Log in to two")
        (folder / "opened").touch()
        await answer(engine, asked, "done")
        assert (await response_of(turn)).text == "did it"
        (folder / "opened").unlink()
        turn = await started(engine, "urls first", first)
        await approve(engine, turn)
        asked = await question(turn, "Log in to one")
        await engine.holdfast.deny(asked.approval_id, digest=asked.digest)
        declined = await response_of(turn)
        turn = await started(engine, "urls first", "nonsense")
        await approve(engine, turn)
        nonsense = await response_of(turn)
    assert declined.error is not None
    assert (declined.error.type, "The tool was not called" in declined.error.message) == ("declined", True)
    assert nonsense.error is not None
    assert nonsense.error.type == "mcp_error"
    assert len(effects(folder)) == 4


async def test_S39_questions_of_one_call_are_asked_one_after_the_other(engine: Engine, folder: Path) -> None:
    use(engine, s=ours(str(folder), effects=READS))
    async with engine.worker():
        turn = await started(engine, "ask", [form("First?"), form("Second?"), form("Third?")])
        for words in ("First?", "Second?", "Third?"):
            await answer(engine, await question(turn, words), f"to {words}")
        told = json.loads((await response_of(turn)).text)
    assert [one["content"]["name"] for one in told] == ["to First?", "to Second?", "to Third?"]


async def test_S39_the_clock_stands_still_while_somebody_is_asked_and_goes_on_after(
    engine: Engine, folder: Path
) -> None:
    use(engine, s=ours(str(folder), effects=READS, timeout_seconds=1))
    async with engine.worker():
        turn = await started(engine, "ask", form())
        asked = await question(turn)
        since = asyncio.get_running_loop().time()
        await wait_until(lambda: _after(since + 1.5))
        await answer(engine, asked, "late")
        assert heard_content(await response_of(turn)) == {"name": "late"}
        turn = await started(engine, "ask and go on", form())
        await answer(engine, await question(turn), "Ana")
        response = await response_of(turn)  # it says nothing more
    assert response.error is not None
    assert response.error.type == "timeout"


async def _after(moment: float) -> bool:
    return asyncio.get_running_loop().time() > moment


async def test_S17_a_stop_while_a_question_waits_is_told_to_the_server_and_leaves_nothing(
    engine: Engine, folder: Path
) -> None:
    use(engine, s=ours(str(folder), effects=READS))
    async with engine.worker():
        turn = await started(engine, "ask", form())
        await question(turn)
        pid = (folder / "pid").read_text()
        await turn.cancel()
        assert (await response_of(turn)).status == "cancelled"
        await wait_until(lambda: asyncio.sleep(0, "told to stop" in effects(folder)))
        await wait_until(lambda: asyncio.sleep(0, heard(folder) == [{"action": "cancel"}]))
        await listed(engine.holdfast, f"{turn.id}/", count=0)
        again = await started(engine, "ask", form())
        await answer(engine, await question(again), "Ana")
        assert heard_content(await response_of(again)) == {"name": "Ana"}
        assert (folder / "pid").read_text() == pid


async def test_S39_answers_go_to_the_questions_they_are_for_where_calls_run_side_by_side(
    engine: Engine, folder: Path
) -> None:
    use(engine, s=ours(str(folder), effects=READS))
    calls = tuple(build_request(ACT, then="ask", value=form(f"Question {n}?")) for n in (1, 2))
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=(calls,)))
        view = await wait_until(lambda: waiting(turn, 2))
        assert {one.question for one in view.approvals} == {"Question 1?", "Question 2?"}

        async def answered() -> bool:
            """All that is asked; once more where it was shown on a call that ended with the answer to another."""
            now = await turn.fetch_view(live=False)
            for asked in now.approvals:
                with suppress(DecisionRefused):
                    await answer(engine, asked, f"to {asked.question}")
            return now.state == "ended"

        await wait_until(answered, 30)
        first, second = (await turn.result()).responses
    assert heard_content(first) == {"name": "to Question 1?"}
    assert heard_content(second) == {"name": "to Question 2?"}


async def test_S39_a_question_that_was_shown_on_another_call_outlives_that_call(engine: Engine, folder: Path) -> None:
    """S39: on standard streams nobody says whose question it is."""
    use(engine, s=ours(str(folder), effects=READS))
    calls = (build_request(ACT, then="hang"), build_request(ACT, then="ask", value=form()))
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=(calls,)))
        asked = await question(turn)
        shown = asked.approval_id.split("/")[1]
        await turn.cancel_call(shown, "enough")
        moved = await question(turn, but=asked.approval_id)
        assert moved.approval_id.split("/")[1] != shown
        await turn.cancel()
        await turn.result()
    assert heard(folder)[-1] == {"action": "cancel"}


@pytest.mark.parametrize("then", ["ask and go on", "ask and withdraw"])
async def test_S39_a_server_that_goes_on_without_the_answer_is_not_kept_waiting(
    engine: Engine, folder: Path, then: str
) -> None:
    use(engine, s=ours(str(folder), effects=READS))
    async with engine.worker():
        turn = await started(engine, then, form())
        await question(turn)
        for name in ("go on", "end"):
            (folder / name).touch()
        assert (await response_of(turn)).text == "did it"
        await listed(engine.holdfast, f"{turn.id}/", count=0)
        if then == "ask and go on":
            await wait_until(lambda: asyncio.sleep(0, heard(folder) == [{"action": "cancel"}]))


async def test_S31_a_server_that_dies_while_its_question_waits(engine: Engine, folder: Path) -> None:
    """S31: what must not run twice is asked about, what may be repeated asks again."""
    use(engine, s=ours(str(folder)))
    async with engine.worker():
        turn = await started(engine, "ask", form())
        await approve(engine, turn)
        await question(turn)
        os.kill(int((folder / "pid").read_text()), signal.SIGKILL)
        again = await wait_until(lambda: _unknown(turn))
        await engine.holdfast.deny(again.approval_id, digest=again.digest)
        response = await response_of(turn)
    assert response.error is not None
    assert response.error.type == "outcome_unknown"
    assert len(effects(folder)) == 1
    use(engine, s=ours(str(folder), effects=READS))
    async with engine.worker():
        turn = await started(engine, "ask", form())
        asked = await question(turn)
        os.kill(int((folder / "pid").read_text()), signal.SIGKILL)
        await answer(engine, await question(turn, but=asked.approval_id), "Ana")
        assert heard_content(await response_of(turn)) == {"name": "Ana"}


async def _unknown(turn: Turn) -> ApprovalView | None:
    view = await waiting(turn)
    asked = view.approvals if view else ()
    return next((one for one in asked if one.kind == "outcome_unknown"), None)


async def test_S31_a_worker_killed_while_a_question_waits(engine: Engine, folder: Path) -> None:
    """S31: the same, when it is the worker that dies, and the question with it."""
    folders = {name: folder / name for name in ("s", "r")}
    for made in folders.values():
        made.mkdir()
    words = [json.dumps(ours(str(made)).model_dump(include={"command", "args"})) for made in folders.values()]
    tables = [f"[mcp.servers.{name}]\n" + _toml(json.loads(word)) for name, word in zip(folders, words, strict=True)]
    file = folder / "holdfast.toml"
    file.write_text("\n".join(tables) + '\neffects = { act = "read" }\n')
    once, read = (TurnInput(batches=((build_request(f"{name}__act", then="ask", value=form()),),)) for name in folders)
    async with hurried_worker(engine, file) as first:
        turns = [await engine.start(one) for one in (once, read)]
        await approve(engine, turns[0])
        asked = [await question(turn) for turn in turns]
        await first.kill()
    async with hurried_worker(engine, file):
        unknown = await wait_until(lambda: _unknown(turns[0]), 60)
        await engine.holdfast.deny(unknown.approval_id, digest=unknown.digest)
        await answer(engine, await question(turns[1], but=asked[1].approval_id), "Ana")
        lost, repeated = [await response_of(turn) for turn in turns]
    assert lost.error is not None
    assert lost.error.type == "outcome_unknown"
    assert heard_content(repeated) == {"name": "Ana"}
    assert len(effects(folders["s"])) == 1


def _toml(table: dict[str, Any]) -> str:
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in table.items())


async def test_S45_what_a_reference_gave_is_in_no_question(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_TOKEN", "canary-c0ffee-5ecret")
    use(engine, s=ours(str(folder), env={"THEIRS": "${CANARY_TOKEN}"}, effects=READS))
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request(ACT, then="ask secret"),),)))
        asked = await question(turn, "Is it [CANARY_TOKEN]?")
        await answer(engine, asked, {"the [CANARY_TOKEN]": "other"})
        await response_of(turn)
        told = await engine.written(turn)
    assert "the [CANARY_TOKEN]" in told
    assert "canary-c0ffee-5ecret" not in told


# The newer protocol: the call ends with its questions and a state, and is made again with the answers


@asynccontextmanager
async def modern(engine: Engine, folder: Path, **more: Any) -> AsyncIterator[None]:
    """A worker with a server of its own."""
    use(engine, m=McpServerSettings(command=sys.executable, args=(str(MODERN), str(folder)), **more))
    async with engine.worker():
        yield


async def test_S39_questions_outlive_worker_and_server_and_the_effect_happens_once(
    engine: Engine, folder: Path
) -> None:
    port = free_port()
    file = folder / "holdfast.toml"
    url = f"http://127.0.0.1:{port}/mcp"
    file.write_text(f'[mcp.servers.m]\nurl = "{url}"\n')
    use(engine, m=McpServerSettings(url=url))
    async with http_server([sys.executable, str(MODERN), str(folder), str(port)], port) as server:
        async with hurried_worker(engine, file) as first:
            turn = await engine.start(TurnInput(batches=((build_request("m__book", day="Monday"),),)))
            await approve(engine, turn)
            asked = await question(turn, "Who comes?")
            with pytest.raises(DecisionRefused, match="at least 2 characters"):
                await answer(engine, asked, {"name": "A"})
            await first.kill()
        await server.kill()
        await server.start()
        async with engine.worker():
            await answer(engine, asked, {"name": "Ana"})
            asked = await question(turn, "How many seats?")
        async with engine.worker():
            await answer(engine, asked, {"seats": 2, "place": "aisle"})
            asked = await question(turn, "2 for Ana, at the aisle?")
            await server.kill()
            await server.start()
            assert effects(folder) == []
            await answer(engine, asked, {"sure": True})
            response = await response_of(turn)
    assert response.text == "Monday: 2 for Ana (True)"
    assert effects(folder) == ["book Monday Ana 2 True"]


async def test_S39_a_refusal_is_told_to_a_newer_server_and_nobody_at_all_is_an_error(
    engine: Engine, folder: Path
) -> None:
    async with modern(engine, folder, effects={"book": Effect.READ}):
        turn = await engine.start(TurnInput(batches=((build_request("m__book", day="Monday"),),)))
        await answer(engine, await question(turn, "Who comes?"), "Ana")
        await answer(engine, await question(turn, "How many"), {"seats": 8})
        asked = await question(turn, "8 for Ana, at the window?")
        await engine.holdfast.deny(asked.approval_id, digest=asked.digest)
        declined = await response_of(turn)
        alone = TurnInput(batches=((build_request("m__book", day="Tuesday"),),), interactive=False)
        nobody = await response_of(await engine.start(alone))
    assert declined.text == "Monday: 8 for Ana (decline)"
    assert nobody.error is not None
    assert (nobody.error.type, "Who comes?" in nobody.error.message) == ("needs_a_person", True)
    assert effects(folder) == ["book Monday Ana 8 decline"]


def elicit(**params: Any) -> Any:
    """A question as the newer protocol has it."""
    return {"method": "elicitation/create", "params": params}


SAMPLE: Any = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}}
UNMET: dict[str, tuple[Any, str, str]] = {
    "sampling": ({"a": SAMPLE, "b": elicit(**form())}, "input_required", "asks for sampling/createMessage, which"),
    "roots": ({"a": {"method": "roots/list"}}, "input_required", "asks for roots/list, which"),
    "nested": ({"a": elicit(**form("?", {"b": {"type": "object"}}))}, "bad_question", "asked for 'b'"),
    "too many": ({str(n): elicit(**form()) for n in range(21)}, "bad_question", "21 questions at once"),
}  # fmt: skip


async def test_S39_what_a_newer_server_wants_and_cannot_have_is_a_clear_error(engine: Engine, folder: Path) -> None:
    async with modern(engine, folder, effects={"want": Effect.READ}):
        results: list[Any] = [{"inputRequests": wanted} for wanted, _, _ in UNMET.values()]
        calls = [build_request("m__want", result=one) for one in results]
        responses = (await (await engine.start(TurnInput(batches=(tuple(calls),)))).result()).responses
    for response, (_, kind, words) in zip(responses, UNMET.values(), strict=True):
        assert response.error is not None
        assert response.error.type == kind
        assert words in response.error.message
    assert effects(folder) == []


async def test_S39_a_newer_server_may_only_want_to_be_called_again_or_have_an_address_opened(
    engine: Engine, folder: Path
) -> None:
    async with modern(engine, folder, effects={"want": Effect.READ}):
        again = TurnInput(batches=((build_request("m__want", result={"requestState": "given"}),),))
        assert (await response_of(await engine.start(again))).text == "{} given"
        opened = elicit(mode="url", message="Pay", url="https://example.org/pay")
        wanted: Any = {"inputRequests": {"a": opened}, "requestState": "st\u00e4te"}
        turn = await engine.start(TurnInput(batches=((build_request("m__want", result=wanted),),)))
        asked = await question(turn, "https://example.org/pay")
        assert asked.urls == ("https://example.org/pay",)
        await answer(engine, asked, "done")
        assert (await response_of(turn)).text == "{'a': {'action': 'accept'}} st\u00e4te"


# server-everything: a real one of the older protocol, over both transports


@asynccontextmanager
async def everything(engine: Engine, transport: str) -> AsyncIterator[None]:
    program = node_server("mcp-server-everything")
    effects = {"trigger-elicitation-request": Effect.READ, "trigger-url-elicitation": Effect.READ}
    if transport == "stdio":
        use(engine, all=McpServerSettings(command=program, args=("stdio",), effects=effects))
        async with engine.worker():
            yield
        return
    port = free_port()
    async with http_server([program, "streamableHttp"], port, PORT=str(port)):
        use(engine, all=McpServerSettings(url=f"http://127.0.0.1:{port}/mcp", effects=effects))
        async with engine.worker():
            yield


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_S39_everything_asks_and_is_answered(engine: Engine, transport: str) -> None:
    ask, url = "all__trigger-elicitation-request", "all__trigger-url-elicitation"
    async with everything(engine, transport):
        turn = await engine.start(TurnInput(batches=((build_request(ask), build_request(ask)),)))
        first, second = sorted((await wait_until(lambda: waiting(turn, 2))).approvals, key=lambda one: one.approval_id)
        with pytest.raises(DecisionRefused, match="at most 100"):
            await answer(engine, first, {"name": "Ana", "integer": 101})
        with pytest.raises(DecisionRefused, match=r"'email' must be a mail address, .* 'birthdate' must be a date"):
            await answer(engine, first, {"name": "Ana", "email": "ana", "birthdate": "May"})
        chosen = {"untitledMultipleSelectEnum": ["Piano", "Bass"], "titledSingleSelectEnum": "hero-3"}
        await answer(engine, first, {"name": "Ana", "check": True, "integer": 100, **chosen})
        await engine.holdfast.deny(second.approval_id, digest=second.digest)
        accepted, declined = (await turn.result()).responses
        if transport == "stdio" and "declined" in accepted.text:  # nobody knows there whose question is whose
            accepted, declined = declined, accepted
        assert "- Name: Ana\n- Agreed to terms: true\n- Favorite Integer: 100" in accepted.text
        assert '"Piano"' in accepted.text
        assert '"legacyTitledEnum": "pet-1"' in accepted.text, "a default"
        assert "User declined" in declined.text
        turn = await engine.start(
            TurnInput(batches=((build_request(url, url="https://example.org/a", errorPath=True),),))
        )
        await answer(engine, await question(turn, "https://modelcontextprotocol.io"), "done")
        await answer(engine, await question(turn, "https://example.org/a"), "done")
        assert "User completed the URL elicitation flow" in (await response_of(turn)).text
