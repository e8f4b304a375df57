"""What of a log record is written, as text and as JSON: whose turn it is about, and nothing that a call was given."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import temporalio.activity
from temporalio.testing import ActivityEnvironment

import holdfast
from holdfast.activities.mcp.transport.server_log import redact_problem
from holdfast.util.redaction import WITHHELD, Redacted, allow_content
from holdfast.workers.runtime.log_format import JsonFormatter, LineFormatter

CANARY = "kZ8qW3vTu6Rm9pLx7"
FILES = {"holdfast": holdfast.__file__, "temporalio": temporalio.activity.__file__, "asyncio": asyncio.__file__}
"""Who logs, by the root of a logger's name."""


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    allow_content(False)


def record(
    name: str, message: str, *args: object, error: BaseException | None = None, **more: Any
) -> logging.LogRecord:
    known = (type(error), error, error.__traceback__) if error else None
    file = FILES.get(name.partition(".")[0], __file__)
    made = logging.LogRecord(name, logging.WARNING, file, 1, message, args, known)
    made.__dict__.update(more)
    return made


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


RECORDS = [
    record("holdfast.x", "It was not kept: %s", Redacted(CANARY)),
    record("holdfast.x", "It was not kept: %s", Redacted(ValueError(CANARY))),
    record("holdfast.x", "It failed", error=raised(ValueError(CANARY))),
    record(
        "temporalio.activity", "Completing activity as failed ({'workflow_id': 't'})", error=raised(KeyError(CANARY))
    ),
    record("temporalio.activity", f"Completing as failure during heartbeat with error of type <class 'x'>: {CANARY}"),
    record("temporalio.activity", f"Exception handling failed, original error: {CANARY}"),
    record("asyncio", f"Task exception was never retrieved\nfuture: <Task exception=ValueError('{CANARY}')>"),
    record("asyncio", f"Executing <Task coro=<f({CANARY})>> took 2 seconds"),
    record("a.tool", "it was given %s", CANARY),
    record("a.tool", f"it was given {CANARY}"),
    record("root", f"it was given {CANARY}"),
    record("temporalio.activity", f"it was given {CANARY}", pathname="/a/tool.py"),
    record("holdfast", f"it was given {CANARY} %s", 1, pathname="/a/tool.py"),
    record("py.warnings", "%s", f"/x/y.py:7: UserWarning: {CANARY}\n  warn({CANARY})\n"),
]


@pytest.mark.parametrize("formatter", [LineFormatter, JsonFormatter])
@pytest.mark.parametrize("verbose", [False, True])
def test_S45_what_others_said_is_written_only_where_that_is_allowed(formatter: Any, verbose: bool) -> None:
    lines = [formatter(verbose=verbose).format(one) for one in RECORDS]
    assert [line for line in lines if CANARY in line] == []
    allow_content(True)
    assert all(CANARY in formatter(verbose=verbose).format(one) for one in RECORDS[:6])


def test_what_is_left_out_leaves_something_to_go_by() -> None:
    def line(one: logging.LogRecord) -> str:
        return LineFormatter().format(one)

    assert line(RECORDS[0]).endswith(f"WARNING It was not kept: {WITHHELD}")
    assert line(RECORDS[1]).endswith("WARNING It was not kept: ValueError")
    assert line(RECORDS[2]).endswith("WARNING It failed: ValueError")
    assert line(RECORDS[3]).endswith("WARNING Completing activity as failed: KeyError")
    assert line(RECORDS[6]).endswith("WARNING Task exception was never retrieved")
    assert line(RECORDS[8]).endswith(f"WARNING message of a.tool {WITHHELD}")
    assert line(RECORDS[-1]).endswith("WARNING /x/y.py:7: UserWarning")


def test_a_line_says_whose_turn_and_call_it_is_about() -> None:
    about = {"workflow_id": "t1", "activity_id": "b1c2-2", "attempt": 3}
    of_call = record("temporalio.activity", "It failed", temporal_activity=about)
    of_turn = record("temporalio.workflow", "Hm", temporal_workflow={"workflow_id": "t2", "attempt": 1})
    assert LineFormatter().format(of_call).endswith("It failed [turn t1, call b1c2, attempt 3]")
    assert LineFormatter().format(of_turn).endswith("Hm [turn t2]")
    found = json.loads(JsonFormatter().format(of_call))
    assert {name: found[name] for name in ("level", "logger", "message", "turn", "call", "attempt")} == {
        "level": "warning",
        "logger": "temporalio.activity",
        "message": "It failed",
        "turn": "t1",
        "call": "b1c2",
        "attempt": 3,
    }
    assert found["worker"].partition("@")[0].isdigit()
    assert found["time"].endswith("Z")


async def test_inside_an_activity_the_turn_is_known_without_being_said() -> None:
    async def body() -> str:
        return LineFormatter().format(record("holdfast.x", "Here"))

    assert "turn test" in await ActivityEnvironment().run(body)


async def test_whatever_a_turn_is_called_it_cannot_forge_a_line() -> None:
    async def body() -> str:
        return LineFormatter().format(record("holdfast.x", "Here"))

    environment = ActivityEnvironment()
    environment.info = replace(environment.info, workflow_id="x]\n00:00:00 ERROR forged\x1b[31m")
    line = await environment.run(body)
    assert "\n" not in line
    assert "\x1b" not in line


def test_json_is_one_line_whatever_is_in_it_and_says_where_when_it_is_to() -> None:
    strange = record("holdfast.x", "a\nb\u2028c\x1b[31m\ud800%s", 1, error=raised(ValueError("x")), temporal_workflow={
        "workflow_id": "t\n\u2028\ud800",
    })  # fmt: skip
    line = JsonFormatter(verbose=True).format(strange)
    assert line.isascii()
    assert "\n" not in line
    found = json.loads(line)
    assert found["error"] == "ValueError"
    assert "test_log_setup.py" in found["frames"][0]
    assert "\x1b" not in found["message"]


def test_an_error_is_called_by_a_name_or_not_at_all() -> None:
    odd = type(f"{CANARY}", (Exception,), {})
    assert json.loads(JsonFormatter().format(record("holdfast.x", "It", error=odd())))["error"] == "other"


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (f"it was ended by signal 9; it said: {CANARY}", "it was ended by signal 9"),
        (f"{CANARY} (code -32000)", WITHHELD),
        ("it was not ready within 1 seconds", "it was not ready within 1 seconds"),
        (None, WITHHELD),
    ],
)
def test_what_is_wrong_with_a_server_is_told_in_our_words(problem: str | None, told: str) -> None:
    assert str(redact_problem(problem)) == told
    allow_content(True)
    assert str(redact_problem(problem)) == str(problem)
