"""The names of deployments and builds, and where they come from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.config.schema import parse_configuration
from holdfast.config.settings import Settings, load_settings
from holdfast.config.toml_document import FileContent
from holdfast.errors import BadInput
from holdfast.workers.terminal.settings_text import list_effective

FILE = Path("/project/holdfast.toml")


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_BUILD", raising=False)


def problems(text: str) -> list[str]:
    return [problem.message for problem in parse_configuration(FileContent(FILE, text.encode())).problems]


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "holdfast.toml"
    file.write_text(text)
    return file


def test_without_a_build_workers_have_no_version() -> None:
    assert Settings().deployment.build is None


def test_the_environment_names_the_build_of_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, '[deployment]\nname = "agents"\nbuild = "of-the-file"\n')
    assert load_settings(file).deployment.build == "of-the-file"
    monkeypatch.setenv("HOLDFAST_BUILD", "2026.11.18+g1a2b3c")
    settings = load_settings(file)
    assert (settings.deployment.name, settings.deployment.build) == ("agents", "2026.11.18+g1a2b3c")
    assert Settings().deployment.build == "2026.11.18+g1a2b3c"
    shown = {name: (value, origin) for name, value, origin in list_effective(settings, {})}
    assert shown["deployment.build"] == ("2026.11.18+g1a2b3c", "environment")
    assert shown["deployment.name"] == ("agents", "file")


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_BUILD", "")
    assert Settings().deployment.build is None


@pytest.mark.parametrize("build", ["__unversioned__", "a b", "sha256:1", "é", "x" * 129, "-v", "a/b", "a\nb", "a\0"])
def test_a_build_that_temporal_would_drop_in_silence_is_an_error(build: str, monkeypatch: pytest.MonkeyPatch) -> None:
    [problem] = problems(f"[deployment]\nbuild = {json.dumps(build)}\n")
    assert "must be 1 to 128 letters" in problem
    if "\0" not in build:
        monkeypatch.setenv("HOLDFAST_BUILD", build)
        with pytest.raises(BadInput, match=r"HOLDFAST_BUILD=.* a build must be"):
            Settings()


@pytest.mark.parametrize("name", ["a.b", "a:b", "", "__x", "x" * 81])
def test_a_deployment_is_named_as_temporal_wants(name: str) -> None:
    [problem] = problems(f"[deployment]\nname = {json.dumps(name)}\n")
    assert "must be 1 to 80 letters" in problem
