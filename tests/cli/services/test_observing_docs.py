"""The page on observing says what is so: its settings are read, its alerts name metrics that there are, `up` serves."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
import urllib.request
from typing import Any

import yaml  # type: ignore[import-untyped]

from holdfast.config.schema import Configuration, parse_configuration
from holdfast.config.toml_document import FileContent
from holdfast.telemetry.metrics import COUNTERS, GAUGES, HISTOGRAMS, list_zero_series
from tests.cli.support import SECONDS, Home, call
from tests.support.pages import ROOT, read_blocks, read_page
from tests.support.services.observed import free_port, samples

PAGE = "observability"
SLOW_GATEWAY = """
import signal, sys
if "gateway" in sys.orig_argv:
    signal.pause()
"""


def _telemetry() -> Configuration:
    block = read_blocks(PAGE)["observing"]
    return parse_configuration(FileContent(ROOT / "holdfast.toml", block.encode())).get_value()


def test_the_settings_of_the_page_are_read() -> None:
    found = _telemetry().telemetry
    assert found.model_fields_set == set(type(found).model_fields)
    [job] = yaml.safe_load(read_blocks(PAGE)["scrape"])["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [found.metrics]


def test_the_alerts_of_the_page_name_metrics_and_outcomes_that_there_are() -> None:
    rules: list[dict[str, Any]] = yaml.safe_load(read_blocks(PAGE)["alerts"])["groups"][0]["rules"]
    known = {*(f"{name}_total" for name in COUNTERS), *HISTOGRAMS, *GAUGES}
    used = {name for rule in rules for name in re.findall(r"holdfast_\w+", rule["expr"])}
    assert used <= known
    assert len({rule["alert"] for rule in rules}) == len(rules)
    text = read_page(PAGE)
    for word in re.findall(r'(?:outcome|reason)(?:=~?|!~)"([\w|]+)"', " ".join(rule["expr"] for rule in rules)):
        assert all(f"`{one}`" in text or one == "no_worker" for one in word.split("|"))


def test_what_the_alerts_look_for_is_there_before_it_happens() -> None:
    """`increase` sees nothing of a series that begins with its first event."""
    rules: list[dict[str, Any]] = yaml.safe_load(read_blocks(PAGE)["alerts"])["groups"][0]["rules"]
    there = [(f"{one.name}_total", one.labels) for one in list_zero_series(["shell"])]
    rises = re.compile(r"increase\((\w+)(?:\{(\w+)=~?\"([\w|]+)\"\})?\[")
    found = [rises.match(rule["expr"]) for rule in rules if "increase" in rule["expr"]]
    assert len(found) == 4
    for match in found:
        assert match
        name, label, values = match.groups()
        for value in values.split("|") if values else [None]:
            assert any(name == other and (value is None or labels[label] == value) for other, labels in there), name


def _turns(port: int) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return sum(value for _, value in samples(answer.read().decode(), "holdfast_turns_total"))


def test_up_says_that_the_port_of_its_metrics_is_taken_and_nothing_of_the_gateway(empty: Home) -> None:
    """It goes because the worker could not come: a second complaint would lead astray. Here it never gets ready."""
    slow = empty.folder / "slow"
    slow.mkdir()
    (slow / "sitecustomize.py").write_text(SLOW_GATEWAY)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file = empty.folder / "holdfast.toml"
        file.write_text(f'[telemetry]\nmetrics = "127.0.0.1:{port}"\n')
        up = ("up", "--port", "0", "--gateway-port", "0")
        done = empty.run("--config", str(file), *up, PYTHONPATH=str(slow))
    assert done.returncode == 1, done.stderr
    first, last = done.stderr.splitlines()
    assert f"metrics cannot be served at 127.0.0.1:{port} (telemetry.metrics)" in first
    assert last == "holdfast: the worker was not ready: it exited with code 2"
    assert done.stdout == ""


def test_up_serves_the_metrics_of_its_worker_also_of_the_next_one(empty: Home) -> None:
    port = free_port()
    file = empty.folder / "holdfast.toml"
    file.write_text(f'[telemetry]\nmetrics = "127.0.0.1:{port}"\nlogs = "json"\n')
    empty.env["HOLDFAST_CONFIG"] = str(file)
    with empty.up() as up:
        for number in (1, 2):
            empty.start(f"t{number}", call("list_directory"))
            empty.seen(f"t{number}", kind="turn", after="completed")
            deadline = time.monotonic() + SECONDS
            while _turns(port) < 1:
                assert time.monotonic() < deadline
            if number == 1:
                os.kill(up.where["worker"], signal.SIGKILL)
                up.wait_for("worker ready")
        assert up.end() == 0
