"""The pages on models, sessions and running unattended do what they say: every block with a test mark is executed.

And every kind of failure and every limit is told.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from holdfast import Holdfast, HoldfastPlugin, ModelChoice, ScriptedReply, TurnInput, TurnLimits
from holdfast.activities.models.media import ITEM_BYTES, REQUEST_BYTES, REQUEST_ITEMS
from holdfast.activities.policy.subject import BUILT_IN
from holdfast.config.settings import load_settings
from holdfast.domain.conversation.messages import ModelSettings
from holdfast.domain.turn.delegation import Delegation
from holdfast.testing import wait_until
from tests.cli.support import SECONDS, Home
from tests.cli.test_readme import _address, _shell
from tests.support.pages import ROOT, read_blocks, read_page, read_samples

MODELS, SCRIPTED, LOCAL = "models", "models/scripted", "models/local"
SESSIONS, UNATTENDED, TOOLS = "sessions", "unattended", "tools"
TYPES = re.compile(r'(?:"(\w+)"\)|type="(\w+)")')


def _words(shown: str) -> list[str]:
    """Lines without what differs from run to run."""
    return [re.sub(r"^\d\d:\d\d:\d\d", "", line) for line in shown.splitlines()]


async def _holdfast(home: Home) -> Holdfast:
    return Holdfast(await Client.connect(_address(home), plugins=[HoldfastPlugin()]))


def test_the_scripted_turn_of_the_page_goes_as_it_is_shown(home: Home) -> None:
    shown = _words(_shell(home, "exec 2>&1\n" + read_blocks(SCRIPTED)["run"]))
    assert [line for line in _words(read_samples(SCRIPTED)["run"]) if line not in shown] == []
    assert shown[-1] == "I have looked."


def test_S44_the_limit_of_the_page_ends_the_turn_as_it_is_shown(home: Home) -> None:
    shown = _shell(home, read_blocks(SCRIPTED)["limits"])
    assert [line for line in read_samples(SCRIPTED)["limits"].splitlines() if line not in shown] == []


async def test_the_scripts_of_the_page_delegate(home: Home) -> None:
    names: dict[str, Any] = {}
    exec(read_blocks(SCRIPTED)["python"], names)
    holdfast = await _holdfast(home)
    async with asyncio.timeout(SECONDS):
        turn = await holdfast.start(TurnInput(prompt="How many?", model=names["MODEL"]))
        result = await turn.result()
        inner = await holdfast.get_turn(f"{turn.id}~b1c1").result()
    assert (result.text, [response.text for response in result.responses]) == ("There are two.", ["Two."])
    assert [response.tool for response in inner.responses] == ["list_directory"]


async def test_the_python_of_the_models_page_asks_a_model(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(read_blocks(MODELS)["python"], names)
    assert names["CHOICE"].model_names == ("anthropic:claude-sonnet-4-5", "openai:gpt-5.5")
    slow = ModelChoice(script=(ScriptedReply(text="It was a dark and stormy night.", seconds=2),))
    async with asyncio.timeout(SECONDS):
        assert await names["ask"](await _holdfast(home), slow, "Tell") == "It was a dark and stormy night."
    seen = capsys.readouterr().out
    assert "It was" in seen
    assert "completed None 0 0" in seen


@pytest.mark.parametrize("page", [MODELS, LOCAL])
def test_the_settings_of_the_pages_are_right(page: str, tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text(read_blocks(page)["settings"])
    models = load_settings(file).models
    assert models.default
    assert all(server.url.endswith("/v1") == (server.speaks == "openai") for server in models.servers.values())


def test_S34_what_models_take_is_as_the_page_says(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text(read_blocks(MODELS)["takes"])
    assert load_settings(file).models.takes["anthropic:*"] == ("image", "document")
    words = read_page(MODELS)
    assert (
        f"the {REQUEST_ITEMS} newest of them, up to {REQUEST_BYTES / 1e6:g} MB together and {ITEM_BYTES / 1e6} MB"
        in words
    )


def test_S18_S24_the_story_of_the_sessions_page_works_as_written(home: Home) -> None:
    blocks = read_blocks(SESSIONS)
    begun = _shell(home, blocks["begin"])
    assert "There is a note to be sorted." in begun
    assert "Turn tidy~2 gets the message." in begun
    home.seen("tidy~2", after="awaiting_approval")
    shown = _shell(home, blocks["look"])
    assert read_samples(SESSIONS)["look"] in shown

    stands = _shell(home, blocks["always"])
    assert "until the session ends" in stands
    assert "g1   allows" in stands
    home.seen("tidy~3", kind="turn", after="completed")
    assert home.seen("tidy~3", call="b1c1", after="scheduled")["actor"] == "person"

    asyncio.run(wait_until(lambda: _idle(home, "tidy"), seconds=SECONDS))
    assert "g1 of session tidy: revoked" in _shell(home, blocks["revoke"])
    assert home.json("sessions", "grants", "tidy")["grants"] == []
    assert "ends when all queued messages are done" in _shell(home, blocks["close"])


async def _idle(home: Home, session: str) -> bool:
    shown = await asyncio.to_thread(home.json, "sessions", "show", session)
    return bool(shown["status"] == "idle")


async def test_the_python_of_the_sessions_page_counts_a_message_once(home: Home) -> None:
    names: dict[str, Any] = {}
    exec(read_blocks(SESSIONS)["python"], names)
    model = ModelChoice(script=(ScriptedReply(text="Good day."), ScriptedReply(text="Good night.")))
    holdfast = await _holdfast(home)
    async with asyncio.timeout(SECONDS):
        for _ in range(2):
            assert await names["say"](holdfast, "greeting", "Hello", "m1", model) == "Good day."
        assert await names["say"](holdfast, "greeting", "Bye", "m2", model) == "Good night."


def test_the_unattended_run_of_the_page_denies_and_completes(home: Home) -> None:
    shown = _shell(home, read_blocks(UNATTENDED)["run"])
    assert read_samples(UNATTENDED)["run"].strip() in shown


def test_the_deadline_of_the_page_denies(home: Home) -> None:
    shown = _shell(home, read_blocks(UNATTENDED)["deadline"])
    assert "expired: Nobody answered before the deadline" in shown
    assert "turn completed" in shown


def test_S29_the_rules_of_the_page_are_right(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "nightly.toml"
    file.write_text(read_blocks(UNATTENDED)["policy"])
    done = home.run("policy", "check", str(file))
    assert done.returncode == 0, done.stderr


def test_every_failure_of_a_model_is_told() -> None:
    source = (ROOT / "activities" / "models" / "failures.py").read_text()
    source += (ROOT / "activities" / "models" / "ask_model.py").read_text()
    found = {one for pair in TYPES.findall(source) for one in pair if one} | {
        *re.findall(r'"(rate_limited|model_\w+)"', source),
        "context_window",
    }
    told = read_page(MODELS)
    assert len(found) > 10
    assert {one for one in found - {"no_answer", "google"} if f"`{one}`" not in told} == set()


def test_every_limit_and_every_setting_of_a_model_is_told() -> None:
    told = read_page(MODELS)
    for name, field in TurnLimits.model_fields.items():
        default = f"{field.default:,}" if field.default else {"seconds": "a year", "tokens": "none"}[name]
        assert f"| `--max-{name}` | `{name}` | {default} |" in told
    assert [name for name in ModelSettings.model_fields if f"| `{name}` |" not in told] == []


def test_every_built_in_tool_is_told() -> None:
    told = read_page(TOOLS)
    assert [name for name in BUILT_IN if f"| `{name}` |" not in told] == []


def test_every_argument_of_delegating_is_told() -> None:
    told = read_page(TOOLS).partition("## Delegating")[2]
    assert [name for name in Delegation.model_fields if f"| `{name}` |" not in told] == []
