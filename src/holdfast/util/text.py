"""Text for people and models: shortened so that both ends stay, and made harmless for a terminal. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby


def drop_surrogates(text: str) -> str:
    """`text` with a question mark for every lone surrogate, which UTF-8 cannot encode."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def shorten_text(text: str, limit: int) -> str:
    """The beginning of `text`, with its full length when it is over the limit. For summaries and views."""
    if len(text) <= limit:
        return text
    note = f"… ({len(text):,} characters)"
    return text[: max(0, limit - len(note))] + note


def first_line(text: str, limit: int = 200) -> str:
    """The first line of untrusted text, controls escaped; an ellipsis when there is more."""
    lines = [line for line in map(str.strip, text.split("\n", 50)) if line]
    if not lines:
        return ""
    more = " …" if len(lines) > 1 else ""
    return shorten_text(escape_controls(" ".join(lines[0][: 2 * limit].split())), limit - len(more)) + more


def elide_middle(text: str, limit: int) -> str:
    """Both ends of `text`, with the number of characters between them. For what a person decides on."""
    if len(text) <= limit:
        return text
    half = max(0, limit - 50 - 2 * len(f"{len(text):,}")) // 2
    left_out = f" … [{len(text) - 2 * half:,} of {len(text):,} characters left out] … "
    return text[:half] + left_out + text[len(text) - half :]


def exception_text(error: BaseException, limit: int = 1_000) -> str:
    """The message of an exception, else the name of its type; also when its `__str__` raises."""
    try:
        return shorten_text(str(error), limit) or type(error).__name__
    except Exception:
        return type(error).__name__


_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\|$)"  # operating system commands: titles, links, clipboard
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\|$)"  # device control and friends
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"  # control sequences: colours, cursor
    r"|\x1b[ -/]*[0-~]?"  # everything else that starts with escape
    r"|\x9b[0-?]*[ -/]*[@-~]?"
)
_UNSEEN = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
)
_DRAWN_AS_NOTHING = (
    r"\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0d\uffa0\U000e0100-\U000e01ef"
)
"""Letters and marks that some scripts need: kept in ordinary text, escaped in what a person decides on."""
_NO_EMOJI = r"|(?<![^\x00-\x7f\ufe00-\ufe0f])[\ufe0e\ufe0f]"
"""Variation selectors behind a character that has no two forms."""
_CONTROLS = re.compile(f"[{_UNSEEN}]")
_HIDDEN = re.compile(f"[{_UNSEEN}{_DRAWN_AS_NOTHING}]{_NO_EMOJI}")
_NOT_PLAIN = re.compile(rf"[{_UNSEEN}{_DRAWN_AS_NOTHING}\xa0\u1680\u2000-\u200a\u202f\u205f]{_NO_EMOJI}")
"""Also characters that look like a blank and do not separate words."""


def has_invisible(text: str) -> bool:
    """Does `text` hold control or invisible characters?"""
    return _HIDDEN.search(text) is not None


def escape_controls(text: str) -> str:
    """`text` with every control and invisible character replaced by a visible one.

    For what a person decides on: a command that hides a part of itself behind an escape code would still run it.
    """
    return _NOT_PLAIN.sub(lambda found: _escape_character(found[0]), text)


def _escape_character(character: str) -> str:
    code = ord(character)
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"


def strip_controls(text: str) -> str:
    """`text` without terminal escape codes and control characters: safe to show anywhere (S32).

    For output. A carriage return that is not part of a line ending starts a new line, so progress bars stay readable.
    """
    text = _ESCAPES.sub("", text.replace("\r\n", "\n")).replace("\r", "\n")
    return _CONTROLS.sub("", text)


def skip_escape_code(text: str, start: int) -> int:
    """The end of the escape code that begins before `start` and extends beyond it; `start` when there is none."""
    begins = max(text.rfind("\x1b", 0, start), text.rfind("\x9b", 0, start))
    code = _ESCAPES.match(text, begins) if begins >= 0 else None
    return max(start, code.end()) if code else start


def remove_invisible(text: str) -> str:
    """`text` without controls, and without characters that a model reads and a person does not see."""
    return _HIDDEN.sub("", strip_controls(text))


_STYLE = re.compile(r"\x1b\[([0-9;]{0,60})m")
_COLOURS = (*range(30, 38), 39, *range(40, 48), 49, *range(90, 98), *range(100, 108))
_STYLES = {0, 1, 2, 3, 4, 7, 9, 22, 23, 24, 27, 29, *_COLOURS}
"""Codes of colours, bold, dim, italic, underlined, reversed and struck, and their ends. Not: blinking, hidden."""
RESET = "\x1b[0m"


def strip_all_but_styles(text: str) -> str:
    """`text` as `strip_controls` makes it, with the styles of its letters: the escape code `ESC [ … m` stays.

    Styles end with the text. For live output, never for what a person decides on.
    """
    text, pieces, place = text.replace("\r\n", "\n"), [], 0
    for escape in _ESCAPES.finditer(text):
        pieces += [strip_controls(text[place : escape.start()]), _keep_style(escape[0])]
        place = escape.end()
    found = "".join([*pieces, strip_controls(text[place:])])
    return found + RESET if "\x1b" in found and not found.endswith(RESET) else found


def _keep_style(escape: str) -> str:
    """The harmless codes of a style; empty for any other escape code."""
    style = _STYLE.fullmatch(escape)
    codes = [int(code or 0) for code in style[1].split(";")] if style else []
    harmless: list[int] = []
    while codes:
        code = codes.pop(0)
        if code in (38, 48):  # one of 256 colours, or red, green and blue
            size = {5: 2, 2: 4}.get(codes[0] if codes else 0, 0)
            colour, codes = codes[:size], codes[size:]
            if not size or len(colour) < size or max(colour) > 255:
                break
            harmless += [code, *colour]
        elif code in _STYLES:
            harmless.append(code)
    return f"\x1b[{';'.join(map(str, harmless))}m" if harmless else ""


class Tail:
    """The end of a growing text; cheap to add to in small pieces."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[str] = []
        self._held = 0
        self.total = 0

    def add(self, text: str) -> None:
        """Append text."""
        self._pieces.append(text[-self._limit :])
        self._held += len(self._pieces[-1])
        self.total += len(text)
        if self._held > 2 * self._limit or len(self._pieces) > 10_000:
            self._pieces = [self.text]
            self._held = len(self._pieces[0])

    @property
    def text(self) -> str:
        """The last characters, up to the limit."""
        return "".join(self._pieces)[-self._limit :]


LINE_LIMIT = 1_000
"""Characters of one line."""
_LEFT_OUT = "… {:,} lines left out"
_LEFT_OUT_LINE = re.compile(r"… ([\d,]+) lines left out")
"""In a diff that was cut before; no other line of a diff begins so."""


def cut_lines(lines: Sequence[str], limit: int) -> list[str]:
    """Both ends of the lines, each line bounded; a line between them says how many are missing."""
    return [_cut_line(line) for line in _elide_lines(list(lines), limit)]


def cut_diff(lines: Sequence[str], limit: int) -> list[str]:
    """About `limit` lines of a diff: every run of added or removed lines loses its middle, or else the whole diff."""
    runs = [[line for _, line in run] for _, run in groupby(_classify_lines(lines), key=lambda item: item[0])]
    for share in range(limit, 1, -1):
        if sum(min(len(run), share) for run in runs) <= limit:
            return [_cut_line(line) for run in runs for line in _elide_lines(run, share)]
    return cut_lines(lines, limit)


def shorten_diff(text: str, limit: int) -> str:
    """About `limit` characters of a diff: whole lines of both ends, and how many are missing between them."""
    if len(text) <= limit:
        return text
    lines = text.removesuffix("\n").split("\n")
    room = max(0, limit - len(_LEFT_OUT.format(len(lines))) - 1) // 2
    lines = [elide_middle(line, room // 2) for line in lines]
    head, tail = (
        sum(size <= room for size in accumulate(len(line) + 1 for line in side)) for side in (lines, lines[::-1])
    )
    if not head or not tail:
        return elide_middle(text, limit)
    if head + tail >= len(lines):
        return "\n".join(lines)
    return "\n".join([*lines[:head], _LEFT_OUT.format(len(lines) - head - tail), *lines[len(lines) - tail :]])


def count_changes(lines: Sequence[str]) -> str:
    """The numbers of added and removed lines as `+3 −450`, of a diff that was not cut."""
    kinds = [kind for kind, _ in _classify_lines(lines)]
    return f"+{kinds.count('+'):,} −{kinds.count('-'):,}"


def _classify_lines(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each line with its kind: `+`, `-`, `@` or blank. Behind the first hunk header, `---` is a removed line."""
    within = False
    for line in lines:
        within = within or line.startswith("@@")
        yield line[0] if line[:1] in ("+", "-") and within else "@" if line.startswith("@@") else " ", line


def _elide_lines(lines: list[str], limit: int) -> list[str]:
    if len(lines) <= limit:
        return lines
    head = (limit + 1) // 2
    tail = limit - head
    left_out = sum(map(_count_lines, lines[head : len(lines) - tail]))
    return [*lines[:head], _LEFT_OUT.format(left_out), *lines[len(lines) - tail :]]


def _count_lines(line: str) -> int:
    """The number of lines that this line of a diff stands for."""
    found = _LEFT_OUT_LINE.fullmatch(line)
    return int(found[1].replace(",", "")) if found else 1


def _cut_line(line: str) -> str:
    if len(line) <= LINE_LIMIT:
        return line
    half = LINE_LIMIT // 2
    return f"{line[:half]} … {len(line) - 2 * half:,} characters left out … {line[-half:]}"
