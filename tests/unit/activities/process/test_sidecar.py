"""Work that is done aside: what kills the process that does it, or takes it too long, costs nothing else (S30)."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from holdfast.activities.process.sidecar import HelperProcess
from holdfast.activities.shell import parse
from holdfast.activities.shell.parse import CPU_SECONDS, ask_tree_sitter, parse_command
from tests.support.marks import alive, until

MODULE = "holdfast.activities.shell.tree_sitter_worker"
SLOW = "a|" * 10_000
"""Seconds of work for the grammar."""


@pytest.fixture
def reader() -> Iterator[HelperProcess]:
    reader = HelperProcess(MODULE, cpu_seconds=CPU_SECONDS)
    yield reader
    reader.close()


def pid_of(reader: HelperProcess) -> int:
    assert reader.pid
    return reader.pid


def test_the_other_reader_tells_the_programs_and_their_words_and_whether_it_saw_an_error() -> None:
    seen = ask_tree_sitter("cd sub && FOO=1 git push origin >out; $(whoami)")
    assert seen
    assert not seen.has_error
    assert seen.names == ("cd", "git", "$(whoami)", "whoami")
    assert seen.commands[:2] == (("cd", "sub"), ("git", "push", "origin"))
    broken = ask_tree_sitter("if (")
    assert broken
    assert broken.has_error


def test_one_process_answers_many_threads_each_its_own(reader: HelperProcess) -> None:
    answers: dict[int, set[tuple[str, ...]]] = {number: set() for number in range(8)}

    def ask(number: int) -> None:
        for _ in range(50):
            seen = reader.ask(f"program{number}")
            assert seen
            answers[number].add(tuple(seen["names"]))

    threads = [threading.Thread(target=ask, args=(number,)) for number in answers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert answers == {number: {(f"program{number}",)} for number in answers}


def test_S30_what_takes_it_too_long_ends_it_and_the_next_command_is_read(reader: HelperProcess) -> None:
    assert reader.ask("true")
    first = pid_of(reader)
    assert reader.ask(SLOW) is None
    assert reader.ask("true")
    assert pid_of(reader) != first


def test_S30_a_reader_killed_at_work_makes_a_doubt_and_one_killed_at_rest_makes_none(reader: HelperProcess) -> None:
    assert reader.ask("true")
    at_work = pid_of(reader)
    killing = threading.Timer(0.05, os.kill, (at_work, signal.SIGKILL))
    killing.start()
    assert reader.ask(SLOW) is None
    killing.join()
    assert reader.ask("true")
    at_rest = pid_of(reader)
    assert at_rest != at_work
    os.kill(at_rest, signal.SIGKILL)
    os.waitid(os.P_PID, at_rest, os.WEXITED | os.WNOWAIT)
    assert reader.ask("true")


@pytest.mark.parametrize(
    ("where", "what"),
    [("sys.executable", "/nowhere/python"), ("sys.path", ["/nowhere"])],
)
def test_S30_what_only_one_of_them_has_read_is_doubted(
    where: str, what: object, reader: HelperProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parse, "TREE_SITTER", reader)
    with monkeypatch.context() as without:
        without.setattr(where, what)
        assert parse_command("git status").doubts == ("the second parser did not finish",)
        assert [doubt.partition(":")[0] for doubt in parse_command("if (").doubts] == ["it cannot be read"]
    assert parse_command("git status").doubts == ()


def test_a_forked_process_has_a_reader_of_its_own(reader: HelperProcess) -> None:
    assert reader.ask("true")
    ours = pid_of(reader)
    child = os.fork()
    if child == 0:
        found = reader.ask("true") is not None and reader.pid != ours
        with suppress(BaseException):
            reader.close()
        os._exit(0 if found else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert reader.pid == ours
    assert reader.ask("true")


async def test_it_ends_with_whoever_asks_it() -> None:
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        reader = HelperProcess(MODULE, cpu_seconds=CPU_SECONDS)
        reader.ask("true")
        os.write(write_end, str(reader.pid).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.to_thread(os.waitpid, child, 0)
    its_pid = int(os.read(read_end, 20))
    os.close(read_end)
    os.close(write_end)
    await until(lambda: not alive(its_pid))
