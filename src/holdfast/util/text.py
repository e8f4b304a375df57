"""Text for people and models: shortened, and made harmless for a terminal. Pure."""

from __future__ import annotations

import re


def drop_surrogates(text: str) -> str:
    """`text` without what UTF-8 cannot say (lone surrogates): it must be writable wherever it goes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def shorten_text(text: str, limit: int) -> str:
    """One line's worth of `text`, for summaries and views; says how much it left out."""
    if len(text) <= limit:
        return text
    note = f"… ({len(text):,} characters)"
    return text[: max(0, limit - len(note))] + note


def first_line(text: str, limit: int = 200) -> str:
    """The first line of a stranger's text, harmless; an ellipsis says that there is more."""
    lines = [line for line in map(str.strip, text.split("\n", 50)) if line]
    if not lines:
        return ""
    more = " …" if len(lines) > 1 else ""
    return shorten_text(escape_controls(" ".join(lines[0][: 2 * limit].split())), limit - len(more)) + more


def elide_middle(text: str, limit: int) -> str:
    """Both ends of `text` when it is long, with what is between them counted: nobody hides at the end of a line."""
    if len(text) <= limit:
        return text
    half = max(0, limit - 50 - 2 * len(f"{len(text):,}")) // 2
    left_out = f" … [{len(text) - 2 * half:,} of {len(text):,} characters left out] … "
    return text[:half] + left_out + text[len(text) - half :]


def exception_text(error: BaseException, limit: int = 1_000) -> str:
    """An exception's words, whatever its author did to them."""
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
"""Letters and marks that some scripts need: ordinary text has them, and words that somebody decides on have not."""
_NO_EMOJI = r"|(?<![^\x00-\x7f\ufe00-\ufe0f])[\ufe0e\ufe0f]"
"""How a character is drawn, where there is none that could be drawn in two ways."""
_CONTROLS = re.compile(f"[{_UNSEEN}]")
_HIDDEN = re.compile(f"[{_UNSEEN}{_DRAWN_AS_NOTHING}]{_NO_EMOJI}")
_NOT_PLAIN = re.compile(rf"[{_UNSEEN}{_DRAWN_AS_NOTHING}\xa0\u1680\u2000-\u200a\u202f\u205f]{_NO_EMOJI}")
"""Also what looks like a blank, and is a part of a word."""


def has_invisible(text: str) -> bool:
    """Does it hold control or invisible characters?"""
    return _HIDDEN.search(text) is not None


def escape_controls(text: str) -> str:
    """`text` with every control and invisible character written out: harmless, and nothing in it is hidden.

    For what a person decides on. A command that hides part of itself behind an escape code would run all of it.
    """
    return _NOT_PLAIN.sub(lambda found: _escape_character(found[0]), text)


def _escape_character(character: str) -> str:
    code = ord(character)
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"


def strip_controls(text: str) -> str:
    """`text` without terminal escape codes, control or invisible characters: safe to show anywhere (S32).

    For output, where what an escape code encloses is meant for a terminal and not for a reader. A carriage return that
    is not part of a line ending starts a new line, so progress bars stay readable.
    """
    text = _ESCAPES.sub("", text.replace("\r\n", "\n")).replace("\r", "\n")
    return _CONTROLS.sub("", text)


def skip_escape_code(text: str, start: int) -> int:
    """Where the escape code ends that begins before `start` and reaches over it; `start` itself without one."""
    begins = max(text.rfind("\x1b", 0, start), text.rfind("\x9b", 0, start))
    code = _ESCAPES.match(text, begins) if begins >= 0 else None
    return max(start, code.end()) if code else start


def seen(text: str) -> str:
    """`text` as `plain` makes it, without anything that a model reads and a person does not see."""
    return _HIDDEN.sub("", strip_controls(text))


_STYLE = re.compile(r"\x1b\[([0-9;]{0,60})m")
_COLOURS = (*range(30, 38), 39, *range(40, 48), 49, *range(90, 98), *range(100, 108))
_STYLES = {0, 1, 2, 3, 4, 7, 9, 22, 23, 24, 27, 29, *_COLOURS}
"""Colours; bold, dim, italic, underlined, reversed, struck, and the end of each. Nothing that blinks or hides."""
RESET = "\x1b[0m"


def strip_all_but_styles(text: str) -> str:
    """`text` as `plain` has it, but for the styles of its letters: the one escape code left is `ESC [ … m`.

    Ends without a style. For viewers that can show it, where what is shown decides nothing.
    """
    text, pieces, place = text.replace("\r\n", "\n"), [], 0
    for escape in _ESCAPES.finditer(text):
        pieces += [strip_controls(text[place : escape.start()]), _keep_style(escape[0])]
        place = escape.end()
    found = "".join([*pieces, strip_controls(text[place:])])
    return found + RESET if "\x1b" in found and not found.endswith(RESET) else found


def _keep_style(escape: str) -> str:
    """What is harmless of an escape code; empty for one that is no style."""
    style = _STYLE.fullmatch(escape)
    codes = [int(code or 0) for code in style[1].split(";")] if style else []
    kept: list[int] = []
    while codes:
        code = codes.pop(0)
        if code in (38, 48):  # one of 256 colours, or red, green and blue
            size = {5: 2, 2: 4}.get(codes[0] if codes else 0, 0)
            colour, codes = codes[:size], codes[size:]
            if not size or len(colour) < size or max(colour) > 255:
                break
            kept += [code, *colour]
        elif code in _STYLES:
            kept.append(code)
    return f"\x1b[{';'.join(map(str, kept))}m" if kept else ""
