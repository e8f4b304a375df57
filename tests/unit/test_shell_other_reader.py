"""The other reader is a process: what kills it, or takes it too long, is asked about, and costs nothing else (S30)."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from holdfast.activities.shell import parsing
from holdfast.activities.shell.other_reader import OtherReader
from holdfast.activities.shell.parsing import read
from tests.support.marks import alive, until

SLOW = "a|" * 10_000
"""Seconds of work for the grammar."""


@pytest.fixture
def reader() -> Iterator[OtherReader]:
    reader = OtherReader()
    yield reader
    reader.close()


def pid_of(reader: OtherReader) -> int:
    assert reader.pid
    return reader.pid


def test_it_tells_the_programs_and_their_words_and_whether_it_saw_an_error(reader: OtherReader) -> None:
    seen = reader.look("cd sub && FOO=1 git push origin >out; $(whoami)")
    assert seen
    assert not seen.has_error
    assert seen.names == ("cd", "git", "$(whoami)", "whoami")
    assert seen.commands[:2] == (("cd", "sub"), ("git", "push", "origin"))
    broken = reader.look("if (")
    assert broken
    assert broken.has_error


def test_one_process_answers_many_threads_each_its_own(reader: OtherReader) -> None:
    answers: dict[int, set[tuple[str, ...]]] = {number: set() for number in range(8)}

    def ask(number: int) -> None:
        for _ in range(50):
            seen = reader.look(f"program{number}")
            assert seen
            answers[number].add(seen.names)

    threads = [threading.Thread(target=ask, args=(number,)) for number in answers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert answers == {number: {(f"program{number}",)} for number in answers}


def test_S30_what_takes_it_too_long_ends_it_and_the_next_command_is_read(reader: OtherReader) -> None:
    assert reader.look("true")
    first = pid_of(reader)
    assert reader.look(SLOW) is None
    assert reader.look("true")
    assert pid_of(reader) != first


def test_S30_a_reader_killed_at_work_makes_a_doubt_and_one_killed_at_rest_makes_none(reader: OtherReader) -> None:
    assert reader.look("true")
    at_work = pid_of(reader)
    killing = threading.Timer(0.05, os.kill, (at_work, signal.SIGKILL))
    killing.start()
    assert reader.look(SLOW) is None
    killing.join()
    assert reader.look("true")
    at_rest = pid_of(reader)
    assert at_rest != at_work
    os.kill(at_rest, signal.SIGKILL)
    os.waitid(os.P_PID, at_rest, os.WEXITED | os.WNOWAIT)
    assert reader.look("true")


@pytest.mark.parametrize(
    ("where", "what"),
    [("sys.executable", "/nowhere/python"), ("holdfast.activities.shell.other_reader._folders", lambda: ["/nowhere"])],
)
def test_S30_what_only_one_of_them_has_read_is_doubted(
    where: str, what: object, reader: OtherReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsing, "OTHER_READER", reader)
    with monkeypatch.context() as without:
        without.setattr(where, what)
        assert read("git status").doubts == ("a second reader could not read it to its end",)
        assert [doubt.partition(":")[0] for doubt in read("if (").doubts] == ["it cannot be read"]
    assert read("git status").doubts == ()


def test_a_forked_process_has_a_reader_of_its_own(reader: OtherReader) -> None:
    assert reader.look("true")
    ours = pid_of(reader)
    child = os.fork()
    if child == 0:
        found = reader.look("true") is not None and reader.pid != ours
        with suppress(BaseException):
            reader.close()
        os._exit(0 if found else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert reader.pid == ours
    assert reader.look("true")


async def test_it_ends_with_whoever_asks_it() -> None:
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        reader = OtherReader()
        reader.look("true")
        os.write(write_end, str(reader.pid).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.to_thread(os.waitpid, child, 0)
    its_pid = int(os.read(read_end, 20))
    os.close(read_end)
    os.close(write_end)
    await until(lambda: not alive(its_pid))
