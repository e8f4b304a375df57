"""What is wrong with a built site: links that lead nowhere, and anything that a browser would load from elsewhere."""

from __future__ import annotations

from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("source", "src")}


class _Page(HTMLParser):
    """The ids of a page, its links, and the addresses of what it loads."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(file.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the tag links to or loads."""
        for name, value in attrs:
            if value and name in ("id", "name"):
                self.ids.add(value)
            elif value and (tag, name) == ("a", "href"):
                self.links.append(value)
            elif value and (tag, name) in LOADED and ("rel", "canonical") not in attrs:
                self.loaded.append(value)


def list_problems(site: Path) -> list[str]:
    """One line for each problem; none when every link leads to a page and an anchor that are there."""
    return [
        f"{page.relative_to(site)}: {problem}"
        for page in sorted(site.rglob("*.html"))
        if page.name != "404.html"  # is served under any address, so its links begin at the root
        for problem in _check(page)
    ]


def _check(page: Path) -> list[str]:
    found = _parse(page)
    elsewhere = [f"loads {one}, which is not of this site" for one in found.loaded if urlsplit(one).netloc]
    return elsewhere + [f"links to {link}, which is not there" for link in found.links if not _exists(page, link)]


def _exists(page: Path, link: str) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    target = target / "index.html" if target.is_dir() else target
    if not target.exists():
        return False
    return not parts.fragment or unquote(parts.fragment) in _parse(target).ids


@cache
def _parse(file: Path) -> _Page:
    return _Page(file)
