"""Web pages as text for a model.

Not by the standard library's parser: it takes quadratic time for pages made for that (an unclosed tag or comment is
searched to the end again and again) and raises for some. This one reads a page once, from left to right. An unclosed
element ends at the end of the page, as in browsers.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import urljoin

URL_LIMIT = 2_000
"""Characters of a link's address; a longer one is left out."""
URLS_LIMIT = 2_000_000
"""Characters of all addresses of a page: a long base could be repeated for every short link."""
MAX_INDENTS = 6
"""The depth to which nested lists are indented."""

_MARKUP = re.compile(r"<(?=[a-zA-Z/!?])")
_TAG = re.compile(r"<(/?)([a-zA-Z][^\s/>]*+)")
_ATTRIBUTE = re.compile(
    r"""[\s/]*+([^\s/>][^\s/>=]*+)(?:\s*+=\s*+(?:"([^"]*+)"?+|'([^']*+)'?+|([^\s>]*+)))?+""",
)
_END = re.compile(r"[\s/]*+>?+")
_COMMENT_END = re.compile(r"--!?>")
_LONG_NUMBER = re.compile(r"&#[0-9]{8,}")
_BEYOND_UNICODE = "&#1114112"

_UNREAD = frozenset({"script", "style", "title", "noscript", "noframes", "noembed", "iframe"})
"""Elements whose content is not markup and not for readers. With them the head is empty."""
_CLOSING = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in _UNREAD}
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_PARAGRAPHS = frozenset({"p", "ul", "ol", "dl", "blockquote", "table", "figure", "hr"})
_LINES = frozenset({
    "address", "article", "aside", "body", "button", "caption", "center", "dd", "details", "dialog", "div", "dt",
    "fieldset", "figcaption", "footer", "form", "header", "legend", "main", "menu", "nav", "option", "section",
    "select", "summary", "textarea", "tr",
})  # fmt: skip


class _Token(NamedTuple):
    """A piece of a page: text, or a tag with its name in lower case, after a slash when it closes."""

    text: str = ""
    name: str = ""
    attributes: Mapping[str, str] = MappingProxyType({})


def convert_to_text(page: str, url: str = "") -> str:
    """Convert an HTML page to text, with links as `text (url)`. `url`: the base of relative links."""
    reader = _PageReader(url)
    for token in _read_tokens(page):
        reader.take_token(token)
    return reader.build_text()


def _read_tokens(page: str) -> Iterator[_Token]:
    at = 0
    while at < len(page):
        found = _MARKUP.search(page, at)
        start = found.start() if found else len(page)
        if start > at:
            yield _Token(text=_decode_entities(page[at:start]))
        if not found:
            return
        if tag := _TAG.match(page, start):
            at, token = _read_tag(page, tag)
            if token:
                yield token
        else:
            at = _find_declaration_end(page, start)


def _find_declaration_end(page: str, start: int) -> int:
    """The end of a comment, a doctype or the like."""
    if not page.startswith("<!--", start):
        return page.find(">", start) + 1 or len(page)
    if page.startswith((">", "->"), start + 4):
        return page.index(">", start) + 1
    found = _COMMENT_END.search(page, start + 4)
    return found.end() if found else len(page)


def _read_tag(page: str, tag: re.Match[str]) -> tuple[int, _Token | None]:
    """The end of a tag, with its content if that is not read; and the tag, unless the page ends inside it."""
    name = tag[2].lower()
    wanted = not tag[1] and name in {"a", "img", "base"}
    at = tag.end()
    attributes: dict[str, str] = {}
    while found := _ATTRIBUTE.match(page, at):
        at = found.end()
        if wanted and (key := found[1].lower()) in {"href", "alt"}:
            attributes.setdefault(key, _decode_entities(found[2] or found[3] or found[4] or ""))
    end = _END.match(page, at)
    at = end.end() if end else at
    if page[at - 1] != ">":
        return len(page), None
    if not tag[1] and name in _UNREAD:
        closing = _CLOSING[name].search(page, at)
        return closing.start() if closing else len(page), None
    return at, _Token(name=tag[1] + name, attributes=attributes)


def _decode_entities(text: str) -> str:
    """Decode entities. A number of thousands of digits would raise ValueError."""
    return html.unescape(_LONG_NUMBER.sub(_BEYOND_UNICODE, text)) if "&" in text else text


class _TextWriter:
    """Writes lines: white space is collapsed, at most one empty line between them."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._breaks = 0
        self._space = False
        self._prefix = ""

    def write(self, text: str) -> None:
        """Add text to the line."""
        if words := text.split():
            self._space = self._space or text[0].isspace()
            self._write_separator()
            self._pieces.append(" ".join(words))
        self._space = (self._space and not words) or text[-1:].isspace()

    def write_verbatim(self, text: str) -> None:
        """Add lines unchanged."""
        if text:
            self._write_separator()
            self._pieces.append(text)

    def append(self, text: str) -> None:
        """Add text directly after the last one."""
        self._pieces.append(text)

    def break_line(self, breaks: int, prefix: str | None = None) -> None:
        """Start a new line; two breaks leave an empty one. `prefix` is written before its text."""
        if prefix is None and self._prefix:
            return  # `<li><p>`: the line has just been started
        self._breaks = max(self._breaks, breaks)
        self._prefix = prefix or ""
        self._space = False

    def break_again(self) -> None:
        """Break once more, up to one empty line."""
        self.break_line(min(2, self._breaks + 1))

    def build_text(self) -> str:
        """Return the text."""
        return "".join(self._pieces)

    def _write_separator(self) -> None:
        if self._breaks:
            self._pieces.append("\n" * self._breaks if self._pieces else "")
            self._pieces.append(self._prefix)
        elif self._space and self._pieces:
            self._pieces.append(" ")
        self._breaks, self._space, self._prefix = 0, False, ""


class _PageReader:
    """Turns tags into lines. It counts open elements instead of building a tree, so nesting costs nothing."""

    def __init__(self, url: str) -> None:
        self._out = _TextWriter()
        self._base = url if len(url) <= URL_LIMIT else ""
        self._urls_left = URLS_LIMIT
        self._hidden = 0
        self._lists = 0
        self._cells = 0
        self._preformatted = 0
        self._verbatim: list[str] = []
        self._link = ""
        self._link_text: list[str] = []

    def build_text(self) -> str:
        """Return the text of the page so far."""
        self._end_link()
        self._end_verbatim()
        return self._out.build_text()

    def take_token(self, token: _Token) -> None:
        """Take the next token."""
        if token.name in ("template", "/template"):
            self._hidden = max(0, self._hidden + (1 if token.name == "template" else -1))
        elif self._hidden:
            return
        elif token.name:
            self._take_tag(token.name.removeprefix("/"), token.name[0] != "/", token.attributes)
        else:
            self._take_text(token.text)

    def _take_text(self, text: str) -> None:
        if self._preformatted:
            self._verbatim.append(text)
            return
        self._out.write(text)
        if self._link:
            self._link_text.append(text)

    def _take_tag(self, name: str, opens: bool, attributes: Mapping[str, str]) -> None:
        if name == "a":
            self._end_link()
            self._link = self._resolve_link(attributes.get("href", "")) if opens else ""
        elif name == "pre":
            self._take_pre(opens)
        elif name == "br":
            self._break_line()
        elif name == "img" and opens:
            self._take_text(attributes.get("alt", ""))
        elif name == "base" and opens:
            self._base = self._resolve_link(attributes.get("href", "")) or self._base
        elif not self._preformatted:
            self._take_block(name, opens)

    def _break_line(self) -> None:
        if self._preformatted:
            self._verbatim.append("\n")
        elif self._cells:
            self._out.write(" ")
        else:
            self._out.break_again()

    def _take_block(self, name: str, opens: bool) -> None:
        if name in _HEADINGS:
            self._out.break_line(2, _HEADINGS[name] if opens else "")
        elif name == "li":
            self._out.break_line(1, "  " * min(self._lists - 1, MAX_INDENTS) + "- " if opens else "")
        elif name in ("td", "th"):
            self._take_cell(opens)
        elif name in _PARAGRAPHS:
            self._take_paragraph(name, opens)
        elif name in _LINES:
            self._take_line(name)

    def _take_paragraph(self, name: str, opens: bool) -> None:
        if name in ("ul", "ol"):
            self._lists = max(0, self._lists + (1 if opens else -1))
            self._out.break_line(1 if self._lists > opens else 2, None if opens else "")
        elif name == "table":
            self._cells = 0
            self._out.break_line(2)
        elif self._cells:
            self._out.write(" ")
        else:
            self._out.break_line(2)

    def _take_line(self, name: str) -> None:
        if name == "tr":
            self._cells = 0
        if self._cells:
            self._out.write(" ")
        else:
            self._out.break_line(1)

    def _take_cell(self, opens: bool) -> None:
        if opens:
            self._cells += 1
            self._out.write(" | " if self._cells > 1 else "")

    def _take_pre(self, opens: bool) -> None:
        self._preformatted = max(0, self._preformatted + (1 if opens else -1))
        if not self._preformatted:
            self._end_verbatim()

    def _end_verbatim(self) -> None:
        self._out.break_line(2)
        self._out.write_verbatim("".join(self._verbatim).strip("\r\n"))
        self._out.break_line(2)
        self._verbatim.clear()

    def _end_link(self) -> None:
        text = " ".join("".join(self._link_text).split())
        if text and self._link and text != self._link:
            self._out.append(f" ({self._link})")
        self._link = ""
        self._link_text.clear()

    def _resolve_link(self, href: str) -> str:
        """The full address of a link; empty for fragments, scripts and data."""
        href = href.strip()
        if not href or len(href) > URL_LIMIT or self._urls_left <= 0:
            return ""
        if href.startswith("#") or href.lower().startswith(("javascript:", "data:")):
            return ""
        try:
            url = urljoin(self._base, href)
        except ValueError:
            url = href
        self._urls_left -= len(url)
        return url if len(url) <= URL_LIMIT else ""
