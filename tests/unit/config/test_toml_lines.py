"""Lines of TOML values: against documents written by hand, and against growing prefixes that `tomllib` reads."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config.toml_lines import Steps, find_lines

DOCUMENT = '''\
# a comment = 1
title = "[not.a.table]" # said

"quoted.key" . 'other' = 1
long = """
[fake]
x = 1 \\
""""
raw = \'\'\'
a = 'b'\'\'\'\'
list = [ # why
  "one", # [two]
  { name = "a", deep.er = [1,
     2] },
  [3, 4,
   5],
]
when = 1979-05-27 07:32:00
[servers.alpha]
"ip" = "10.0.0.1"
[[item]]
name = 'first'
[item.inner]
x = 1
[[item]]
[[item.part]]
[[item.part]]
n = { a.b = 1, "c d" = [[]] }
'''
LINES: dict[Steps, int] = {
    ("title",): 2,
    ("quoted.key", "other"): 4,
    ("long",): 5,
    ("raw",): 9,
    ("list",): 11,
    ("list", 0): 12,
    ("list", 1, "name"): 13,
    ("list", 1, "deep", "er", 0): 13,
    ("list", 1, "deep", "er", 1): 14,
    ("list", 2): 15,
    ("list", 2, 2): 16,
    ("when",): 18,
    ("servers",): 19,
    ("servers", "alpha", "ip"): 20,
    ("item",): 21,
    ("item", 0, "inner", "x"): 24,
    ("item", 1): 25,
    ("item", 1, "part", 0): 26,
    ("item", 1, "part", 1, "n", "a", "b"): 28,
    ("item", 1, "part", 1, "n", "c d", 0): 28,
}


def test_every_kind_of_value_is_found_on_its_line() -> None:
    tomllib.loads(DOCUMENT)
    assert find_lines(DOCUMENT, LINES) == LINES
    assert find_lines(DOCUMENT.replace("\n", "\r\n"), LINES) == LINES


@pytest.mark.parametrize(
    ("path", "line"), [((), 1), (("nothing",), 1), (("item", 1, "name"), 25), (("list", 9, "x"), 11), (("raw", 0), 9)]
)
def test_what_is_not_there_is_where_its_nearest_ancestor_is(path: Steps, line: int) -> None:
    assert find_lines(DOCUMENT, [path]) == {path: line}


def test_no_paths_have_no_lines() -> None:
    assert find_lines(DOCUMENT, []) == {}


def test_a_long_file_and_a_deep_one_take_no_time() -> None:
    many = "".join(f"[t{number}]\nlist = [1,\n2]\n" for number in range(30_000))
    assert find_lines(many, [("t29999", "list", 1)]) == {("t29999", "list", 1): 90_000}
    deep = ".".join("a" * 100_000) + " = 1\nb = " + "[" * 100_000
    assert find_lines(deep, [("b",)]) == {("b",): 2}


# Against an oracle

keys = st.sampled_from(["a", "b", "c-1", '"a"', "'b c'", '"x.y"', '"\\u00e9\\n"', "é".encode().hex(), "1"])
dotted = st.lists(keys, min_size=1, max_size=3).flatmap(
    lambda parts: st.sampled_from([".", " . ", "\t."]).map(lambda dot: dot.join(parts))
)
scalars = st.sampled_from(
    [
        "1", "-2.5", "true", "inf", "0x_f".replace("_", ""), "1979-05-27 07:32:00.5", "07:32:00", '"#"', "'\\'",
        '"\\""', '"""\n#"""', '"""a\n"" \\\n "x"""""', "'''\n[x]\n'''''", '""', "''", '""""""', "''''''", '"a]}=,"',
    ]
)  # fmt: skip
gaps = st.sampled_from(["", " ", "\n", " # ], } =\n", "\n\n\t"])


def arrays(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    items = st.lists(st.tuples(gaps, values, gaps).map("".join), max_size=3)
    return st.tuples(items, gaps).map(lambda made: f"[{','.join(made[0])}{made[1]}]")


def inline(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.lists(st.tuples(dotted, values).map(" = ".join), max_size=3)
    return pairs.map(lambda made: f"{{ {', '.join(made)} }}")


values = st.recursive(scalars, lambda inner: arrays(inner) | inline(inner), max_leaves=6)
statements = st.one_of(
    st.tuples(dotted, values).map(" = ".join),
    dotted.map(lambda key: f"[{key}]"),
    dotted.map(lambda key: f"[[ {key} ]]"),
    st.sampled_from(["", "  ", "# a = 1", "\t#"]),
)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Statements, of which those are left out that TOML does not allow where they are."""
    text = ""
    for statement in draw(st.lists(st.tuples(statements, st.sampled_from(["\n", "\r\n", " # x\n"])).map("".join))):
        if _value(text + statement) is not None:
            text += statement
    return text


def _value(text: str) -> dict[str, object] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _paths(value: object, path: Steps = ()) -> Iterator[Steps]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in inner:
        yield from _paths(item, (*path, step))


def _spans(text: str) -> dict[Steps, tuple[int, int]]:
    """For every path the lines of the statement that first brings it, by reading growing prefixes."""
    found: dict[Steps, tuple[int, int]] = {(): (1, 1)}
    lines = text.split("\n")
    before = 0
    for end in range(1, len(lines) + 1):
        value = _value("\n".join(lines[:end]))
        if value is not None:
            for path in _paths(value):
                found.setdefault(path, (before + 1, end))
            before = end
    return found


@given(documents())
def test_every_path_is_on_a_line_of_the_statement_that_first_brings_it(text: str) -> None:
    spans = _spans(text)
    lines = find_lines(text, [*spans])
    for path, (first, last) in spans.items():
        assert first <= lines[path] <= last, path


@given(documents())
def test_children_never_stand_before_their_parents_and_elements_stand_in_order(text: str) -> None:
    paths = list(_paths(tomllib.loads(text)))
    lines = find_lines(text, paths)
    for path in paths:
        assert lines[path] >= lines[path[:-1]]
        if path and isinstance(path[-1], int) and path[-1]:
            assert lines[path] >= lines[(*path[:-1], path[-1] - 1)]


@given(st.text() | st.text("[]{}=.,\"'\\\n #ab1"))
def test_text_that_is_not_toml_is_no_trouble(text: str) -> None:
    assert find_lines(text, [("a",)])[("a",)] >= 1
