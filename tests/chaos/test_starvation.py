"""Turns go on as soon as their starved worker gets processor time again (S42)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.starvation import starve
from tests.support.engine import new_engine


@pytest.mark.alone
async def test_turns_of_a_starved_worker_go_on_when_it_has_time_again(server_address: str, tmp_path: Path) -> None:
    async with new_engine(server_address, tmp_path) as engine:
        found = await starve(engine, seconds=12, turns=4, steps=30)
    assert (found.completed, found.lost) == (4, 0)
