"""What the unit tests share: a bounded, reproducible Hypothesis, and an empty workspace."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("unit", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unit")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder
