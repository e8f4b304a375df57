"""What was cut or kept of a result, for models on any host: `read_output`, and images that they see (S33, S34)."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import zlib
from collections.abc import AsyncIterator
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pydantic_ai.models.anthropic  # they take seconds to load: not while a test runs
import pydantic_ai.models.openai  # noqa: F401
import pytest

from holdfast import (
    BlobPart,
    Effect,
    Holdfast,
    ModelChoice,
    Response,
    Result,
    Run,
    SessionInput,
    TextPart,
    Turn,
    TurnInput,
)
from holdfast.activities.models.media import REQUEST_ITEMS
from holdfast.config.schema import HookSettings, MediaKind, ModelServerSettings, ModelsSettings
from holdfast.config.sections import S3Settings, StorageSettings
from holdfast.domain.calls.tool import ToolFailure
from holdfast.testing import FakeTool, build_request, wait_until
from tests.support.engine import Engine
from tests.support.services.clouds import BUCKET, s3_server
from tests.support.services.providers import Act, Provider, provider
from tests.support.waiting import done

LINES = "".join(f"line {number}\n" for number in range(1, 10_001))
NAME = hashlib.sha256(LINES.encode()).hexdigest()[:32]


async def _much(arguments: dict[str, Any], run: Run) -> str:
    if arguments.get("fail"):
        raise ToolFailure("broken", "It broke", (TextPart(text=LINES),))
    return LINES


MUCH = FakeTool("much", _much, safe=True, effect=Effect.READ)


@pytest.fixture
def elsewhere(engine: Engine) -> Engine:
    """The same queue and workspace as another host sees them: a data folder of its own, with the payloads of all."""
    made = copy(engine)
    made.settings = replace(engine.settings, data=engine.settings.data.with_name("elsewhere"))
    made.settings.data.mkdir()
    engine.settings.payloads_folder.mkdir(parents=True, exist_ok=True)
    made.settings.payloads_folder.symlink_to(engine.settings.payloads_folder)
    return made


async def called(turn: Turn, tool: str, **arguments: Any) -> Response:
    """The response to one more call of a turn that is kept open."""
    batch = await turn.submit([build_request(tool, **arguments)])
    await wait_until(lambda: done(turn, batch))
    [response] = (await turn.fetch_batch(batch)).responses
    return response


async def opened(engine: Engine) -> Turn:
    """A turn in which nobody can be asked."""
    return await engine.start(TurnInput(keep_open=True, interactive=False))


# Reading


@pytest.mark.parametrize("fail", [False, True])
async def test_S33_the_whole_of_a_cut_output_is_read_on_another_host_without_asking(
    engine: Engine, elsewhere: Engine, fail: bool
) -> None:
    turn = await opened(engine)
    async with engine.worker(MUCH):
        first = await called(turn, "much", fail=fail)
    assert f"characters left out; read_output reads the whole, by the name {NAME}] …" in first.text
    async with elsewhere.worker(MUCH):
        some = await called(turn, "read_output", name=NAME, start_line=5_000, line_count=2)
        found = await called(turn, "read_output", name=NAME, pattern=" 1?777$")
    assert (some.status, some.text) == ("success", "line 5000\nline 5001\n")
    assert found.text == "777:line 777\n1777:line 1777"
    assert not elsewhere.settings.outputs_folder.exists(), "it was read from where hosts share it"


async def test_S33_a_command_is_read_the_same_way(engine: Engine) -> None:
    engine.with_rules('[[rule]]\ndecision = "allow"\ncommand = "seq **"\n')
    turn = await opened(engine)
    async with engine.worker():
        first = await called(turn, "shell", command="seq 100000")
        name = first.text.partition("by the name ")[2][:32]
        last = await called(turn, "read_output", name=name, start_line=54_321, line_count=1)
    assert last.text == "54321\n"


async def test_S33_an_output_is_its_sessions_alone(engine: Engine) -> None:
    """Whoever learns a name elsewhere, be it from a file, has nothing by it."""
    async with engine.worker(MUCH):
        turn, other = await opened(engine), await opened(engine)
        await called(turn, "much")
        assert (await called(turn, "read_output", name=NAME, line_count=1)).text == "line 1\n"
        denied = await called(other, "read_output", name=NAME, line_count=1)
    assert denied.error is not None
    assert (denied.status, denied.error.type) == ("error", "no_such_output")


async def test_S35_what_a_hook_replaced_cannot_be_read(engine: Engine) -> None:
    """Also not by the name that stands in what the hook saw, and passed on."""
    hook = (
        "import json, sys; call = json.load(sys.stdin); print(json.dumps({'result': call['text'].replace('1', '*')}))"
    )
    words = {"name": "hide", "when": "after", "tools": ["much"], "command": ["python3", "-c", hook]}
    engine.settings = replace(engine.settings, hooks=(HookSettings.model_validate(words),))
    turn = await opened(engine)
    async with engine.worker(MUCH):
        first = await called(turn, "much")
        assert "line *0000" in first.text
        denied = await called(turn, "read_output", name=NAME, line_count=1)
    assert denied.error is not None
    assert denied.error.type == "no_such_output"


async def test_S7_a_store_that_does_not_answer_costs_the_whole_and_not_the_result(engine: Engine) -> None:
    turn = await opened(engine)
    (engine.settings.payloads_folder / "outputs").parent.mkdir(parents=True, exist_ok=True)
    (engine.settings.payloads_folder / "outputs").write_text("no folder")
    async with engine.worker(MUCH):
        first = await called(turn, "much")
        denied = await called(turn, "read_output", name=NAME)
    assert (first.status, first.text[:7]) == ("success", "line 1\n")
    assert denied.error is not None
    assert denied.error.type in ("no_such_output", "output_not_readable")


async def test_S33_outputs_are_shared_in_a_bucket_where_payloads_are(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with s3_server(tmp_path, monkeypatch) as cloud:
        bucket = S3Settings(bucket=BUCKET, endpoint=cloud.url, region="us-east-1", prefix="p")
        engine.settings = replace(engine.settings, storage=StorageSettings(kind="s3", s3=bucket))
        engine.client = await engine.connect()
        engine.holdfast = Holdfast(engine.client, task_queue=engine.queue)
        async with engine.worker(MUCH):
            turn = await opened(engine)
            await called(turn, "much")
            some = await called(turn, "read_output", name=NAME, start_line=10_000)
    assert some.text == "line 10000\n"
    assert not (engine.settings.payloads_folder / "outputs").exists()


# Seeing


def png(shade: int = 0, size: int = 8) -> bytes:
    """An image."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes([shade]) * size for _ in range(size))
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


async def _draw(arguments: dict[str, Any], run: Run) -> Result:
    first, count = arguments.get("first", 0), arguments.get("count", 1)
    images = [
        BlobPart.from_bytes(png(shade), "image/png", name=f"{shade}.png") for shade in range(first, first + count)
    ]
    return Result(parts=(TextPart(text="Drawn."), *images))


async def _lie(arguments: dict[str, Any], run: Run) -> Result:
    large = png() + b"\0" * 4_000_000
    text = BlobPart.from_bytes(b"not an image at all", "image/png", name="lie.png")
    return Result(
        parts=(
            text,
            BlobPart.from_bytes(large, "image/png", name="large.png"),
            BlobPart.from_bytes(b"PK", "application/zip"),
        )
    )


DRAW = FakeTool("draw", _draw, safe=True, effect=Effect.READ)
LIE = FakeTool("lie", _lie, safe=True, effect=Effect.READ)


class Served:
    """An engine whose workers ask a server of models that looks at what it is sent."""

    def __init__(self, engine: Engine, server: Provider, speaks: Any, *takes: MediaKind) -> None:
        self.engine, self.server, self.speaks = engine, server, speaks
        url = f"{server.url}/v1" if speaks == "openai" else server.url
        local = {"local": ModelServerSettings(url=url, speaks=speaks)}
        engine.settings = replace(engine.settings, models=ModelsSettings(servers=local, takes={"local:*": takes}))

    async def turn(self, *acts: Act) -> Turn:
        self.server.acts += acts
        return await self.engine.start(TurnInput(prompt="Look", model=ModelChoice(name="local:fake")))

    def images(self, request: int = -1) -> list[bytes]:
        """The images of a request, as its API has them: each after or within the answers of tools."""
        found: list[bytes] = []
        for message in self.server.asked[request]["messages"]:
            blocks = message["content"] if isinstance(message.get("content"), list) else []
            if self.speaks == "openai":
                urls = [block["image_url"]["url"] for block in blocks if block["type"] == "image_url"]
                assert not urls or message["role"] == "user", "a tool's message holds text alone"
                found += [base64.b64decode(url.removeprefix("data:image/png;base64,")) for url in urls]
                continue
            inside = [one for block in blocks if block["type"] == "tool_result" for one in block["content"]]
            sources = [one["source"] for one in inside if isinstance(one, dict) and one["type"] == "image"]
            assert all((one["type"], one["media_type"]) == ("base64", "image/png") for one in sources)
            found += [base64.b64decode(one["data"]) for one in sources]
        return found

    def told(self, request: int = -1) -> str:
        """All that a request says."""
        return json.dumps(self.server.asked[request]["messages"], ensure_ascii=False)


@pytest.fixture(params=["openai", "anthropic"])
def speaks(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def seeing(engine: Engine, speaks: str) -> AsyncIterator[Served]:
    async with provider() as server:
        yield Served(engine, server, speaks, "image")


async def test_S34_an_image_reaches_a_model_that_takes_images_as_its_api_wants_it(seeing: Served) -> None:
    engine = seeing.engine
    (engine.workspace / "p.png").write_bytes(png(7))
    both = Act(calls=(("read_file", {"path": "p.png"}), ("draw", {"count": 2})))
    async with engine.worker(DRAW):
        turn = await seeing.turn(both, Act(text="A grey square."))
        result = await turn.result()
    assert (result.status, result.text) == ("completed", "A grey square.")
    assert seeing.images() == [png(7), png(0), png(1)]
    assert "[p.png, image/png, " in seeing.told()
    assert base64.b64encode(png(7)).decode() not in await engine.written(turn)


async def test_S34_an_image_of_another_host_and_an_earlier_turn_is_seen(seeing: Served, elsewhere: Engine) -> None:
    engine = seeing.engine
    elsewhere.settings = replace(elsewhere.settings, models=engine.settings.models)
    start = SessionInput(turn=TurnInput(model=ModelChoice(name="local:fake")))
    session = engine.holdfast.get_session()
    seeing.server.acts += [Act(calls=(("draw", {"first": 9}),)), Act(text="Drawn."), Act(text="Still grey.")]
    async with engine.worker(DRAW):
        await session.send("Draw", start=start)
        await wait_until(lambda: _idle(session, 1))
    async with elsewhere.worker(DRAW):
        await session.send("And now?")
        await wait_until(lambda: _idle(session, 2))
    assert seeing.images() == [png(9)]
    assert not elsewhere.settings.outputs_folder.exists()


async def _idle(session: Any, turns: int) -> bool:
    view = await session.fetch_view()
    return bool(view.turns == turns and view.turn is None)


async def test_S34_a_model_that_takes_no_images_reads_what_there_is(engine: Engine, speaks: str) -> None:
    async with provider() as server:
        blind = Served(engine, server, speaks)
        async with engine.worker(DRAW):
            turn = await blind.turn(Act(calls=(("draw", {}),)), Act(text="I cannot see it."))
            assert (await turn.result()).status == "completed"
    assert blind.images() == []
    assert "Drawn.\\n[0.png, image/png, " in blind.told()
    assert "(not shown: this model accepts no image)" in blind.told()


async def test_S34_what_is_shown_is_bounded_and_the_newest(seeing: Served) -> None:
    most = REQUEST_ITEMS
    acts = (
        Act(calls=(("draw", {"count": most}),)),
        Act(calls=(("draw", {"first": most, "count": 3}), ("lie", {}))),
        Act(text="I see."),
    )
    async with seeing.engine.worker(DRAW, LIE):
        assert (await (await seeing.turn(*acts)).result()).status == "completed"
    assert seeing.images(1) == [png(shade) for shade in range(most)]
    assert seeing.images(2) == [png(shade) for shade in range(4, most + 3)], "one of them only said it was an image"
    told = seeing.told()
    assert told.count("(not shown: newer ones are. read_output shows it again)") == 4
    assert "[lie.png, image/png, 19 bytes" in told
    assert "(not shown: its content does not match its type)" in told
    assert "(not shown: it is over 3,750,000 bytes)" in told
    assert "[application/zip, 2 bytes" in told


async def test_S34_an_image_that_a_provider_refuses_is_described_from_then_on(seeing: Served) -> None:
    """It would fail every later step, and every later turn of its session."""
    acts = (
        Act(calls=(("draw", {}),)),
        Act(status=400, error="Could not process image"),
        Act(calls=(("draw", {"first": 5}),)),
        Act(text="I see one."),
    )
    async with seeing.engine.worker(DRAW):
        result = await (await seeing.turn(*acts)).result()
    assert (result.status, result.text) == ("completed", "I see one.")
    assert [seeing.images(number) for number in range(4)] == [[], [png(0)], [], [png(5)]]
    assert "(not shown: the provider of the model rejected it)" in seeing.told(2)
    assert "(not shown: the provider of the model rejected it)" in seeing.told(3)


async def test_a_request_that_is_refused_for_another_reason_fails_as_it_did(seeing: Served) -> None:
    acts = (Act(calls=(("draw", {}),)), *[Act(status=400, error="No such setting")] * 2)
    async with seeing.engine.worker(DRAW):
        result = await (await seeing.turn(*acts)).result()
    assert result.status == "failed"
    assert "No such setting" in (result.reason or "")


async def test_S34_a_model_sees_an_image_again_that_it_asks_for(seeing: Served) -> None:
    name = hashlib.sha256(png(0)).hexdigest()[:32]
    acts = (Act(calls=(("draw", {}),)), Act(calls=(("read_output", {"name": name}),)), Act(text="The same."))
    async with seeing.engine.worker(DRAW):
        assert (await (await seeing.turn(*acts)).result()).status == "completed"
    assert seeing.images() == [png(0), png(0)]
