"""The media type of content: from its first bytes, and from the Content-Type that a server declares."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

SNIFF_BYTES = 8_192
"""Bytes that are examined."""
UNKNOWN_TYPE = "application/octet-stream"

_MAGIC = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"%PDF-": "application/pdf",
    b"ID3": "audio/mpeg",
    b"PK\x03\x04": "application/zip",
    b"\x1f\x8b": "application/gzip",
}
_WORDS = {b"GIF87a", b"GIF89a", b"ID3"}
"""Magic numbers that a text may also begin with."""
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXT = re.compile(
    r"text/.*|.*\+(json|xml|yaml)|application/(x-)?"
    r"(json|ndjson|jsonlines|xml|javascript|ecmascript|yaml|toml|sh|sql|graphql|tex|www-form-urlencoded)"
)
_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+", re.ASCII)
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", re.ASCII | re.IGNORECASE)
_DECLARED = re.compile(rb"(?:<meta[^>]+charset|<\?xml[^>]+encoding)\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_HTML_START = re.compile(rb"\s*<(!doctype\s+html|html|head|body)\b", re.IGNORECASE)
_CHARSETS = re.compile(r"(utf-(8|16|32)|ascii|iso8859|iso2022|cp|koi8|gb|hz|big5|euc|shift_jis|johab|mac|tis).*")
"""Python codecs that are charsets of the web; some of the others take quadratic time or are no charsets."""


@dataclass(frozen=True)
class MediaKind:
    """A media type, and the charset of its text."""

    media_type: str
    charset: str = "utf-8-sig"

    @property
    def is_text(self) -> bool:
        """Can it be read as text?"""
        return bool(_TEXT.fullmatch(self.media_type))

    @property
    def is_html(self) -> bool:
        """Is it a web page?"""
        return self.media_type in _HTML


def find_media_kind(head: bytes, content_type: str) -> MediaKind:
    """The media type that a server declares, else one that is guessed from the first bytes; and the charset."""
    declared = content_type.partition(";")[0].strip().lower()
    media_type = (
        declared if _MEDIA_TYPE.fullmatch(declared) and declared != UNKNOWN_TYPE else _guess_type(head, declared)
    )
    return MediaKind(media_type, _find_charset(head, content_type, media_type))


def find_binary_type(data: bytes) -> str | None:
    """The media type of a binary file by its first bytes; None for text."""
    for magic, kind in _MAGIC.items():
        if data.startswith(magic) and (magic not in _WORDS or b"\0" in data[:SNIFF_BYTES]):
            return kind
    if data[:4] == b"RIFF" and data[8:12] in _RIFF:
        return _RIFF[data[8:12]]
    return UNKNOWN_TYPE if b"\0" in data[:SNIFF_BYTES] else None


def _guess_type(head: bytes, declared: str) -> str:
    if kind := find_binary_type(head):
        return kind
    if not _is_utf8(head):
        return UNKNOWN_TYPE
    return "text/html" if not declared and _HTML_START.match(head) else "text/plain"


def _is_utf8(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def _find_charset(head: bytes, content_type: str, media_type: str) -> str:
    """The charset from the header, else from the document, else UTF-8."""
    declared = _CHARSET.search(content_type)
    if declared and (codec := _find_codec(declared[1])):
        return codec
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    inside = _DECLARED.search(head) if media_type != "text/plain" else None
    codec = _find_codec(inside[1].decode("ascii", "replace")) if inside else None
    # A document that declares its charset in ASCII is not in UTF-16, whatever it declares (HTML, "prescan").
    return codec if codec and not codec.startswith(("utf-16", "utf-32")) else "utf-8-sig"


def _find_codec(name: str) -> str | None:
    try:
        codec = codecs.lookup(name).name
    except LookupError:
        return None
    if not _CHARSETS.fullmatch(codec):
        return None
    # As browsers do (WHATWG Encoding): these labels mean windows-1252.
    return {"iso8859-1": "cp1252", "ascii": "cp1252", "utf-8": "utf-8-sig"}.get(codec, codec)
