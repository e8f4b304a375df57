"""Formats of texts in forms: what people write is taken, what is plainly something else is not, and none takes long."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.forms.fields import FORMATS

FIT = {
    "date": ["2026-05-31", "2024-02-29", "0001-01-01"],
    "date-time": [
        "2026-05-31T14:30:00Z",
        "2026-05-31t14:30:00.123456789z",
        "2026-05-31T14:30:60+02:00",
        "1990-12-31T23:59:59-11:30",
    ],
    "email": ["ana@example.org", "a.b+c@mail.example.co.uk", "foo-.bar@x.de", "ana@exämple.org", "o'neil@x.ie"],
    "uri": [
        "https://example.org",
        "HTTP://user:word@example.org:8080/a%20b?c=d#e",
        "http://[::1]:80/",
        "mailto:ana@example.org",
        "urn:isbn:0451450523",
        "file:///etc/hosts",
        "https://exämple.org/ü",
    ],
}
MISFIT = {
    "date": ["", "2026-02-30", "2026-5-1", "31.5.2026", "today", "2026-05-31T14:30:00Z", "2026-05-31\n",
             "２０２６-05-31"],
    "date-time": [
        "2026-05-31",
        "2026-05-31T14:30:00",
        "2026-05-31 14:30:00Z",
        "2026-05-31T24:30:00Z",
        "2026-05-31T14:30:61Z",
        "2026-02-30T14:30:00Z",
        "2026-05-31T14:30:00+25:00",
    ],
    "email": ["ana", "ana@", "@x.de", "ana@home", "a b@x.de", "a@b@x.de", "a..b@x.de", ".a@x.de", "a@x..de", "a@-x.de",
              "a@x-.de", "Ana <ana@x.de>", "a@x.de\n", "a" * 255 + "@x.de"],
    "uri": ["", "example.org", "https://", "https:///path", "http://?x", "https://ex ample.org", "https://a/%zz",
            "//x.de", "http://x:99999999/", "https://x.de/\n", "1http://x.de"],
}  # fmt: skip


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in FIT.items() for text in texts])
def test_S39_what_people_write_fits(name: str, text: str) -> None:
    assert FORMATS[name].fits(text)


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in MISFIT.items() for text in texts])
def test_S39_what_is_plainly_something_else_does_not_fit(name: str, text: str) -> None:
    assert not FORMATS[name].fits(text)


@pytest.mark.parametrize("name", FORMATS)
def test_the_example_of_a_format_fits_it(name: str) -> None:
    words = FORMATS[name].words
    assert FORMATS[name].fits(words.rpartition(" ")[2]), words


@given(moment=st.datetimes(timezones=st.just(UTC)))
def test_every_moment_fits_as_python_writes_it(moment: datetime) -> None:
    assert FORMATS["date"].fits(moment.date().isoformat())
    assert FORMATS["date-time"].fits(moment.isoformat())


@pytest.mark.parametrize("part", ["a", "a.", "a-", "a@", ":", "%", "/", "[", "1"])
def test_no_text_takes_long(part: str) -> None:
    began = time.process_time()
    for head in ("", "a@a", "http://", "2026-05-31T14:30:00."):
        for one in FORMATS.values():
            one.fits(head + part * 200_000 + "\n")
    assert time.process_time() - began < 2
