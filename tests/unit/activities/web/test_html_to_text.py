"""Web pages as text: what a reader sees of them, in time that grows with their length and no faster."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.activities.web.html_to_text import URL_LIMIT, URLS_LIMIT, convert_to_text

BASE = "https://site.example/docs/page.html"


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("", ""),
        ("plain", "plain"),
        ("  a \n\t b\xa0 c  ", "a b c"),
        ("a<b>b</b>c <i>d</i> e", "abc d e"),
        ("<h1>One</h1><h2>Two <i>too</i></h2><h6>Six</h6>text", "# One\n\n## Two too\n\n###### Six\n\ntext"),
        ("<h2></h2>text", "text"),
        ("<p>a<p>b</p>c", "a\n\nb\n\nc"),
        ("<div>a</div><div><div>b</div></div>c", "a\nb\nc"),
        ("a<br>b<br/><br>c<br><br><br><br>d", "a\nb\n\nc\n\nd"),
        ("<ul><li>a</li><li>b</li></ul>c", "- a\n- b\n\nc"),
        ("<ol><li>a<li>b<ul><li>c</ul><li>d</ol>", "- a\n- b\n  - c\n- d"),
        ("<ul><li><p>a</p></li><li></ul>b", "- a\n\nb"),
        ("<table><tr><th>A<th>B</tr><tr><td>1</td><td><p>2</p><p>3</p></td></tr></table>x", "A | B\n1 | 2 3\n\nx"),
        ("<table><tr><td>a<br>b<td><td><div>c</div></table>", "a b | | c"),
        ("x<pre>\n  if a &lt; b:\n\n    <b>c</b>\n</pre>y", "x\n\n  if a < b:\n\n    c\n\ny"),
        ("<pre>never\n  closed", "never\n  closed"),
        ("<img src=x alt='A  cat'> sat<img src=y>", "A cat sat"),
        ("a &amp; b &#233;&#xe9; &nbsp;&copy &unknown; &", "a & b éé © &unknown; &"),
        ("&lt;b&gt;", "<b>"),
        ("1 < 2 <3 <", "1 < 2 <3 <"),
    ],
)
def test_page_reads_as_it_looks(page: str, text: str) -> None:
    assert convert_to_text(page, BASE) == text


@pytest.mark.parametrize(
    "noise",
    [
        "<!doctype html><html><head><title>T</title><meta charset=utf-8><link rel=x></head>",
        "<head><title>never </titles> closed</title>",
        "<script>if (a < b) document.write('<p>x</p>')</script>",
        "<SCRIPT>x</sCrIpT >",
        "<style>p { color: red }</style>",
        "<noscript><p>x</p></noscript>",
        "<template><p>x<template>y</template>z</template>",
        "<iframe>x</iframe>",
        "<!-- x > -- > y -->",
        "<!-->",
        "<!--->",
        "<!-- x --!>",
        "<?xml version='1.0'?>",
        "<![CDATA[x]]>",
        "</>",
        "</ x>",
        "<p title='a > b' =x \"y / z=>",
        "</template></pre></ul></a></table>",
    ],
)
def test_noise_is_dropped(noise: str) -> None:
    assert convert_to_text(f"{noise}text", BASE).strip() == "text"


@pytest.mark.parametrize(
    "open_end", ["<!-- x", "<!doctype", "<p", "<p class='x", "<script>x", "<style>x</styl", "<template>x", "</p", "<?"]
)
def test_what_is_never_closed_goes_on_to_the_end(open_end: str) -> None:
    assert convert_to_text(f"text{open_end} more <p") == "text"


@pytest.mark.parametrize(
    ("link", "text"),
    [
        ("<a href=other.html>other</a>.", "other (https://site.example/docs/other.html)."),
        ("<a href='/top'>top</a>", "top (https://site.example/top)"),
        ('<A HREF=" //cdn.example/x?a=1&amp;b=2 ">x</A>', "x (https://cdn.example/x?a=1&b=2)"),
        ("<a href=https://x.example/>https://x.example/</a>", "https://x.example/"),
        ("<a href=mailto:a@x.example>mail</a>", "mail (mailto:a@x.example)"),
        ("<a href=#part>part</a>", "part"),
        ("<a href=JavaScript:alert(1)>x</a>", "x"),
        ("<a href=data:text/html,x>x</a>", "x"),
        ("<a name=x>x</a>", "x"),
        ("<a href=/x></a>y", "y"),
        ("<a href=/x>a<a href=/y>b", "a (https://site.example/x)b (https://site.example/y)"),
        ("<a href=/x><h3>Card</h3></a>text", "### Card (https://site.example/x)\n\ntext"),
        ("<a href='/x'><img alt=Logo></a>", "Logo (https://site.example/x)"),
        ("<a href='http://[x'>x</a>", "x (http://[x)"),
        ("<base href=/other/><a href=x>x</a>", "x (https://site.example/other/x)"),
        ("<base><a href=x>x</a>", "x (https://site.example/docs/x)"),
        ("<pre><a href=/x>x</a> y</pre>", "x y"),
        ("<a href=/x href=/y>x</a>", "x (https://site.example/x)"),
    ],
)
def test_link_is_followed_by_its_address(link: str, text: str) -> None:
    assert convert_to_text(link, BASE) == text


def test_address_that_is_too_long_is_left_out() -> None:
    assert convert_to_text(f"<a href={'x' * URL_LIMIT}>x</a>", BASE) == "x"


def test_long_base_is_not_repeated_without_end() -> None:
    page = f"<base href=/{'b' * 1_900}/>" + "<a href=b>x</a>" * 20_000
    assert len(convert_to_text(page, BASE)) < URLS_LIMIT + 100_000


HOSTILE = {
    "nested tags": "<div>" * 100_000,
    "nested and closed": "<div>" * 100_000 + "x" + "</div>" * 100_000,
    "nested lists": "<ul><li>x" * 100_000,
    "nested templates": "<template>" * 100_000,
    "nested pre": "<pre>x" * 100_000,
    "unclosed tags": "<a" * 500_000,
    "unclosed tags with a space": "<a " * 500_000,
    "unclosed end tags": "</" * 500_000,
    "unclosed comments": "<!--" * 250_000,
    "unclosed sections": "<![CDATA[" * 100_000,
    "unclosed quotes": "<a b=\"'" * 150_000,
    "unclosed links": "<a href=x>y " * 50_000,
    "unclosed scripts": "<script></scrip" * 70_000,
    "almost the end of a comment": "<!--" + "--" * 500_000,
    "attributes": "<a " + "a=b " * 1_250_000 + ">",
    "names of attributes": "<a " + "a" * 5_000_000,
    "a name": "<" + "a" * 5_000_000,
    "spaces in a tag": "<a" + " " * 5_000_000 + "x",
    "spaces after an attribute": "<a x" + " " * 5_000_000 + "x",
    "slashes in a tag": "<a " + "/" * 5_000_000,
    "spaces": " " * 5_000_000,
    "less than": "<" * 5_000_000,
    "ampersands": "&" * 2_000_000,
    "numbers": "&#" * 500_000,
    "a number": "&#" + "9" * 5_000_000 + ";",
    "a hexadecimal number": "&#x" + "f" * 5_000_000 + ";",
    "cells": "<td>x" * 100_000,
    "breaks": "<br>" * 200_000,
    "headings": "<h1>x" * 100_000,
}


@pytest.mark.parametrize("page", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_page_is_read_in_one_pass(page: str) -> None:
    begin = time.process_time()
    text = convert_to_text(page, BASE)
    assert time.process_time() - begin < 10, "quadratic time would be minutes"
    assert len(text) < 3 * len(page) + 1_000


markup = st.sampled_from([
    "<", ">", "</", "/>", "<!", "<!--", "-->", "<?", "&", "&#", "&#x;", "&#1", "&amp;", "=", '"', "'", "/", "\\", " ",
    "\n", "\0", "\ud800", "é", "x", "a", "p", "pre", "li", "ul", "td", "table", "base", "href", "alt", "<br>", "http://[",
    "<a href=", "<img alt=", "</a>", "<script>", "</script", "<template>", "</pre>",
])  # fmt: skip


@given(st.one_of(st.text(), st.lists(markup).map("".join)), st.one_of(st.just(BASE), st.text()))
def test_no_page_raises(page: str, url: str) -> None:
    text = convert_to_text(page, url)
    assert not text.isspace() or "<pre" in page
