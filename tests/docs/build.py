"""Builds the documentation as a site: python -m tests.docs.build ZENSICAL.

The pages are copied to build/pages as they stand in the repository, so a link that works there works on the site. A
mark `<!-- generate: NAME -->` is replaced by what is made from the code. Then the site is built in build/site with
warnings as errors, and what was built is checked (`check_site`).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.docs.check_site import list_problems
from tests.docs.commands import render_commands
from tests.docs.python_names import render_names
from tests.support.pages import ROOT

STAGED, SOURCE, SITE = (ROOT / "build" / name for name in ("pages", "source", "site"))
GENERATED = {"commands": render_commands, "names": render_names}
DECISIONS = '"docs/decisions/*.md"'


def stage_pages() -> None:
    """Copy every page, and what pages link to, to build/pages, with the generated parts put in."""
    shutil.rmtree(STAGED, ignore_errors=True)
    for file in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.*"), *(ROOT / "deploy").rglob("*.*")]:
        target = STAGED / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_fill(file.read_text()) if file.suffix == ".md" else file.read_text())


def stage_source() -> None:
    """Copy the package to build/source: griffe passes over links and namespace packages."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(ROOT / "src" / "holdfast", SOURCE / "holdfast", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in ("activities", "workers", "workflows"):
        (SOURCE / "holdfast" / folder / "__init__.py").touch()


def stage_configuration() -> None:
    """Write build/zensical.toml, with the decisions named one by one: zensical knows no wildcards there."""
    decisions = sorted(str(file.relative_to(ROOT)) for file in (ROOT / "docs" / "decisions").glob("*.md"))
    text = (ROOT / "zensical.toml").read_text()
    assert DECISIONS in text
    (ROOT / "build" / "zensical.toml").write_text(text.replace(DECISIONS, str(decisions)[1:-1]))


def _fill(text: str) -> str:
    for name, render in GENERATED.items():
        mark = f"<!-- generate: {name} -->"
        if mark in text:
            text = text.replace(mark, render())
    return text


def main(zensical: str) -> int:
    """The exit code: 0 when the site is built and nothing is wrong with it."""
    stage_pages()
    stage_source()
    stage_configuration()
    command = [str(Path(zensical).resolve()), "build", "--strict", "--clean"]
    built = subprocess.run(command, cwd=ROOT / "build", check=False)
    problems = list_problems(SITE) if built.returncode == 0 else []
    print(*problems, sep="\n")
    return built.returncode or bool(problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
