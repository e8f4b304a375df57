"""Checking arguments: the same words from a pydantic model and from a JSON schema, and nothing but words."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, JsonValue

from holdfast.activities.process.sidecar import HelperProcess
from holdfast.activities.registry import json_schema
from holdfast.activities.registry.arguments import CheckedArguments, InvalidArguments, JsonSchema, ModelSchema, Schema
from holdfast.activities.registry.json_schema import MAX_DEATHS, SCHEMA_LIMIT, SCHEMA_PROCESS, SchemaTooHard
from holdfast.domain.calls.tool import StrictParameters
from holdfast.errors import BadInput
from holdfast.util.json_values import MAX_DEPTH

PATIENCE = 2.0
"""Seconds that anything here may take."""


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


class Change(StrictParameters):
    path: str
    line: int = Field(default=1, ge=1)


class Arguments(StrictParameters):
    """One of each."""

    name: str = Field(default="x", min_length=1, max_length=5, pattern="^[a-z]+$")
    count: int = Field(default=0, ge=0, lt=10, multiple_of=2)
    share: float = Field(default=1, gt=0, le=1)
    sure: bool = False
    mode: Literal["read", "write", "append"] = "read"
    only: Literal["this"] = "this"
    colour: Colour = Colour.RED
    edits: list[Change] = Field(default_factory=list, max_length=3)
    names: Annotated[list[str], Field(min_length=1)] = Field(default=["a"])
    either: int | list[str] = 1
    maybe: Change | None = None
    by_name: dict[str, Change] = Field(default_factory=dict)


MODEL = ModelSchema(Arguments, Arguments.model_json_schema())
RAW = JsonSchema(Arguments.model_json_schema())


def complaint(schema: Schema, arguments: Any) -> str:
    with pytest.raises(InvalidArguments) as error:
        schema.check(arguments)
    return str(error.value)


def problems(schema: Schema, arguments: Any) -> str:
    """What is wrong, without the list of parameters."""
    told, found, _ = complaint(schema, arguments).partition(" Its parameters: ")
    assert found
    return told.removesuffix(".")


def answer(schema: Schema, arguments: Any) -> str:
    """What is wrong, in words; nothing when it fits. Any other exception is a failure of the test."""
    try:
        schema.check(arguments)
    except InvalidArguments as error:
        return str(error)
    return ""


def of(**properties: Any) -> JsonSchema:
    return JsonSchema({"type": "object", "properties": properties})


# The same words for the same mistake

SAME = [
    ({"name": 5}, "name: must be text, not 5"),
    ({"name": None}, "name: must be text, not null"),
    ({"name": ""}, 'name: must have at least 1 character, got ""'),
    ({"name": "toolong"}, 'name: must have at most 5 characters, got "toolong"'),
    ({"name": "A"}, "name: must match pattern '^[a-z]+$', got \"A\""),
    ({"count": "ten"}, 'count: must be a whole number, not "ten"'),
    ({"count": 1.5}, "count: must be a whole number, not 1.5"),
    ({"count": []}, "count: must be a whole number, not []"),
    ({"count": -2}, "count: must be greater than or equal to 0, got -2"),
    ({"count": 12}, "count: must be less than 10, got 12"),
    ({"count": 3}, "count: must be a multiple of 2, got 3"),
    ({"share": {}}, "share: must be a number, not {}"),
    ({"share": 0}, "share: must be greater than 0, got 0"),
    ({"share": 2}, "share: must be less than or equal to 1, got 2"),
    ({"sure": "perhaps"}, 'sure: must be true or false, not "perhaps"'),
    ({"mode": "x"}, 'mode: must be one of "read", "write", "append", not "x"'),
    ({"mode": "writ"}, 'mode: must be one of "read", "write", "append", not "writ". Did you mean "write"?'),
    ({"only": "that"}, 'only: must be "this", not "that". Did you mean "this"?'),
    ({"colour": "gren"}, 'colour: must be one of "red", "green", not "gren". Did you mean "green" or "red"?'),
    ({"edits": {}}, "edits: must be an array, not {}"),
    ({"edits": [{"path": "a"}] * 4}, "edits: must have at most 3 items, got "),
    ({"edits": [{"path": "a"}, {"path": "b"}, {"path": 3}]}, "edits[2].path: must be text, not 3"),
    ({"edits": [{}]}, "edits[0].path: is required"),
    ({"edits": ["a"]}, 'edits[0]: must be an object, not "a"'),
    ({"edits": [{"path": "a", "line": 0}]}, "edits[0].line: must be greater than or equal to 1, got 0"),
    ({"edits": [{"path": "a", "lin": 2}]}, 'edits[0].lin: is not a parameter. Did you mean "line"?'),
    ({"by_name": {"x": {"path": "a", "lin": 2}}}, 'by_name.x.lin: is not a parameter. Did you mean "line"?'),
    ({"maybe": {"path": "a", "lin": 2}}, 'maybe.lin: is not a parameter. Did you mean "line"?'),
    ({"maybe": {"path": 1}}, "maybe.path: must be text, not 1"),
    ({"maybe": {}}, "maybe.path: is required"),
    ({"names": []}, "names: must have at least 1 item, got []"),
    ({"either": {}}, "either: must be a whole number or an array, not {}"),
    ({"nmae": "x"}, 'nmae: is not a parameter. Did you mean "name"'),
    ({"completely other": 1}, "completely other: is not a parameter"),
    ([], "arguments: must be an object, not []"),
    ("name=x", 'arguments: must be an object, not "name=x"'),
    (None, "arguments: must be an object, not null"),
]


@pytest.mark.parametrize(("arguments", "words"), SAME)
@pytest.mark.parametrize("schema", [MODEL, RAW], ids=["model", "schema"])
def test_S6_a_mistake_has_the_same_words_whoever_found_it(schema: Schema, arguments: Any, words: str) -> None:
    assert problems(schema, arguments).startswith(words)


@pytest.mark.parametrize("schema", [MODEL, RAW], ids=["model", "schema"])
def test_S6_every_problem_is_told_at_once_and_then_the_parameters(schema: Schema) -> None:
    told = complaint(schema, {"name": 5, "edits": [{}], "nmae": 1})
    for words in ("name: must be text", "edits[0].path: is required", "nmae: is not a parameter"):
        assert words in told
    assert "Its parameters: name (string), count (integer), share (number), sure (boolean), mode (string)" in told
    assert "??" not in told
    assert "?." not in told


@pytest.mark.parametrize("schema", [MODEL, RAW], ids=["model", "schema"])
def test_S6_what_fits_is_given_as_it_was(schema: Schema) -> None:
    arguments: JsonValue = {"name": "abc", "edits": [{"path": "a"}], "maybe": None}
    checked = schema.check(arguments)
    assert checked.written == arguments


def test_a_model_converts_and_a_schema_does_not() -> None:
    assert MODEL.check({"count": "4"}).written == {"count": 4}
    assert problems(RAW, {"count": "4"}) == 'count: must be a whole number, not "4"'


# Giants


GIANT = "x" * 1_000_000


@pytest.mark.parametrize("schema", [MODEL, RAW], ids=["model", "schema"])
@pytest.mark.parametrize(
    "arguments",
    [
        {"name": GIANT},
        {"mode": GIANT},
        {"count": GIANT},
        {"count": [GIANT]},
        {"share": {GIANT: GIANT}},
        {GIANT: GIANT},
        {f"{number}{GIANT[:1000]}": 1 for number in range(500)},
        {"edits": [{"path": 1}] * 5_000},
        {"by_name": {GIANT: {}}},
        {"either": {GIANT: 1}},
        GIANT,
        [GIANT],
    ],
    ids=lambda value: type(value).__name__,
)
def test_S6_giants_are_cut(schema: Schema, arguments: Any) -> None:
    assert len(complaint(schema, arguments)) < 4_000


def test_S6_long_value_leaves_room_for_what_is_wrong_with_it() -> None:
    schema = of(a={"pattern": "^short$"}, b={"type": "object", "minProperties": 2}, c={"uniqueItems": True})
    told = problems(schema, {"a": GIANT, "b": {GIANT: 1}, "c": [GIANT, GIANT]})
    assert "a: must match pattern '^short$', got" in told
    assert "b: must have at least 2 items, got" in told
    assert "c: must not hold the same item twice, got" in told
    assert len(told) < 600


def test_S6_of_many_options_some_are_shown() -> None:
    told = problems(of(a={"enum": list(range(1_000))}), {"a": "x"})
    assert told.startswith("a: must be one of 0, 1, 2")
    assert told.endswith('or 980 others, not "x"')


def test_S6_of_many_parameters_some_are_listed() -> None:
    schema = JsonSchema({"properties": {f"p{number}": {} for number in range(500)}, "required": ["p499"]})
    told = complaint(schema, {})
    assert told.startswith("p499: is required. Its parameters: p0, p1, ")
    assert told.endswith(", p39, ….")


def test_S6_deep_place_is_told_by_its_end() -> None:
    schema = JsonSchema({"properties": {"inner": {"$ref": "#"}}, "additionalProperties": False})
    arguments: Any = {"b": 1}
    for _ in range(MAX_DEPTH - 2):
        arguments = {"inner": arguments}
    told = problems(schema, arguments)
    assert told.startswith("…")
    assert told.endswith(".inner.inner.b: is not a parameter")
    assert len(told) < 300
    assert "too many levels" in complaint(schema, {"inner": {"inner": {"inner": arguments}}})


# Forms


@pytest.mark.parametrize(
    ("schema", "value", "words"),
    [
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, [], "a: must be text or a whole number, not []"),
        ({"anyOf": [{"type": ["string", "null"]}, {"type": "array"}]}, 1, "a: must be null or text or an array, not 1"),
        ({"type": ["string", "null"]}, 5, "a: must be null or text, not 5"),
        ({"anyOf": [{"enum": ["x", "y"]}, {"type": "null"}]}, "z", 'a: must be one of "x", "y", not "z"'),
        (
            {"anyOf": [{"type": "object", "properties": {"x": {"type": "string"}}}, {"type": "null"}]},
            {"x": 1},
            "a.x: must be text, not 1",
        ),
        (
            {"oneOf": [{"type": "object", "required": ["x"]}, {"type": "object", "required": ["y", "z"]}]},
            {},
            "a.x: is required",
        ),
        (
            {
                "oneOf": [
                    {"type": "object", "properties": {"kind": {"const": "circle"}}, "required": ["radius"]},
                    {"type": "object", "properties": {"kind": {"const": "box"}}, "required": ["width", "height"]},
                ]
            },
            {"kind": "box", "radius": 1},
            "a.width: is required; a.height: is required",
        ),
        ({"oneOf": [{}, {"type": "string"}]}, "x", 'a: fits more than one of the forms it may have, got "x"'),
        ({"const": None}, "x", 'a: must be null, not "x"'),
        ({"const": {"b": 1}}, 1, 'a: must be {"b": 1}, not 1'),
        ({"enum": [1, None, "x"]}, 2, 'a: must be one of 1, null, "x", not 2'),
        (False, 1, "a: must not be given, got 1"),
        ({"not": {"type": "string"}}, "x", 'a: {"type":"string"} is not allowed for it, got "x"'),
        ({"pattern": "^(?!secret)"}, "secret", "a: must match pattern '^(?!secret)', got \"secret\""),
        ({"items": {"items": {"type": "integer"}}}, [[1], [1, "x"]], 'a[1][1]: must be a whole number, not "x"'),
        ({"contains": {"const": 1}}, [2], "a: "),
        ({"propertyNames": {"maxLength": 2}}, {"long": 1}, 'a: "long" is longer than 2 characters'),
    ],
)  # fmt: skip
def test_S6_what_a_schema_wants_is_told(schema: Any, value: Any, words: str) -> None:
    assert problems(of(a=schema), {"a": value}).startswith(words)


def test_S6_keys_made_of_digits_are_names() -> None:
    inner: Any = {"type": "object", "properties": {"name": {}}, "additionalProperties": False}
    schema = JsonSchema({"properties": {"0": inner}})
    assert problems(schema, {"0": {"nmae": 1}}) == '0.nmae: is not a parameter. Did you mean "name"?'
    assert problems(schema, {"0": 1}) == "0: must be an object, not 1"


@pytest.mark.parametrize(
    "reference", ["#/$defs/Change", "#change", "http://tools.example/change.json", "#/$defs/a~1b", "#/$defs/Chain"]
)
def test_S6_what_is_forbidden_behind_a_reference_is_told(reference: str) -> None:
    change = {"type": "object", "properties": {"path": {"type": "string"}}, "additionalProperties": False}
    definitions: Any = {
        "Change": change,
        "a/b": change,
        "Chain": {"$ref": "#/$defs/Change"},
        "Anchor": {**change, "$anchor": "change"},
        "Id": {**change, "$id": "http://tools.example/change.json"},
    }
    schema = JsonSchema(
        {"properties": {"edits": {"type": "array", "items": {"$ref": reference}}}, "$defs": definitions}
    )
    assert problems(schema, {"edits": [{"path": "a"}, {"pth": 1}]}).startswith("edits[1].pth: is not a parameter")


@pytest.mark.parametrize("key", ["additionalProperties", "unevaluatedProperties"])
def test_S6_unknown_names_are_compared_with_the_known(key: str) -> None:
    schema = JsonSchema({"allOf": [{"properties": {"path": {}}}], "properties": {"line": {}}, key: False})
    assert 'pth: is not a parameter. Did you mean "path"?' in problems(schema, {"pth": 1})


# Schemas that cannot be used


@pytest.fixture
def port() -> Iterator[tuple[int, list[bytes]]]:
    """A port of this machine, and what was sent to it."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)

        def serve() -> None:
            try:
                asked.append(server.accept()[0].recv(1_000))
            except OSError:
                return

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1], asked
        thread.join()


@pytest.mark.parametrize("key", ["$ref", "$dynamicRef", "$schema", "$id"])
@pytest.mark.parametrize("scheme", ["http", "file", "relative"])
def test_S6_reference_to_elsewhere_is_refused_and_not_followed(
    key: str, scheme: str, port: tuple[int, list[bytes]], tmp_path: Path
) -> None:
    (tmp_path / "other.json").write_text("{}")
    base = {"http": f"http://127.0.0.1:{port[0]}/", "file": f"{tmp_path.as_uri()}/", "relative": ""}[scheme]
    if key == "$id":
        schema: Any = {"$id": f"{base}base.json", "properties": {"a": {"$ref": "other.json"}}}
    elif key == "$schema":
        schema = {"$schema": f"{base}other.json"}
    else:
        schema = {"properties": {"a": {key: f"{base}other.json"}}}
    with pytest.raises(BadInput, match="cannot be used") as refused:
        JsonSchema(schema).compile()
    assert "other.json" in str(refused.value)
    assert port[1] == []


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "array"}, "must be of type object"),
        ({"type": "string"}, "must be of type object"),
        ({"type": ["object", "null"]}, "must be of type object"),
        ({"type": None}, "must be of type object"),
        ({"type": "object", "properties": 5}, "5 at properties"),
        ({"properties": {"a": {"type": "strnig"}}}, '"strnig" at properties.a.type'),
        ({"properties": {"a": {"pattern": "("}}}, '"(" at properties.a.pattern'),
        ({"properties": {"a": {"$ref": "#/$defs/missing"}}}, "does not exist"),
        ({"required": "a"}, '"a" at required'),
        ({"minProperties": -1}, "-1 at minProperties"),
        ({"default": float("nan")}, "JSON cannot represent it"),
        ({"default": "\ud800"}, "JSON cannot represent it"),
        ({"default": {1, 2}}, "JSON cannot represent it"),
        ({"description": "x" * 300_000}, "is over 262,144 bytes"),
        ({"description": "é" * (SCHEMA_LIMIT // 2)}, "is over 262,144 bytes"),
    ],
)
def test_S6_schema_that_cannot_be_used_is_refused_with_the_reason(schema: Any, words: str) -> None:
    with pytest.raises(BadInput) as error:
        JsonSchema(schema).compile()
    assert words in str(error.value)
    assert len(str(error.value)) < 600
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("depth", [300, 2_000, 20_000])
def test_S6_bottomless_schema_is_refused(depth: int) -> None:
    schema: Any = {}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    with pytest.raises(BadInput):
        JsonSchema(schema).compile()


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"properties": {"a": {"$ref": "#"}}},
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": {"type": "object"}}},
        {"$schema": "https://json-schema.org/draft/2020-12/schema"},
    ],
)  # fmt: skip
def test_schema_that_says_little_or_turns_in_circles_is_taken(schema: Any) -> None:
    arguments: Any = {"a": {"a": {}}}
    assert JsonSchema(schema).check(arguments) == CheckedArguments(arguments, arguments)


# Patterns


@pytest.mark.parametrize(
    "pattern",
    [
        r"^(a+)+$",
        r"^(?=(a+)+$)(a+)+$",
        r"^(?!x)(a|aa)+$",
        r"^(a+)\1+$",
        r"^(?!z)(.*a){20}$",
        r"(x+x+)+y",
        r"^(?<!b)(a*)*b$",
    ],
)
@pytest.mark.parametrize("text", ["a" * 60 + "!", "a" * 50_000 + "!", "x" * 10_000], ids=["60", "50k", "x"])
def test_S6_pattern_that_could_run_for_ever_ends(pattern: str, text: str) -> None:
    schema = of(a={"type": "string", "pattern": pattern})
    began = time.monotonic()
    assert len(answer(schema, {"a": text})) < 1_000
    assert time.monotonic() - began < PATIENCE


# Anything at all

NAMES = st.sampled_from([*Arguments.model_fields, "path", "line", "0", "1"])
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["\ud800", "a" * 300]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | NAMES, inner, max_size=4),
    max_leaves=12,
)
SHAPED = st.dictionaries(NAMES, JSON, max_size=6) | JSON


@given(SHAPED)
def test_S6_a_schema_answers_whatever_it_is_given(arguments: Any) -> None:
    told = answer(RAW, arguments)
    assert len(told) < 8_000
    assert " Its parameters: " in told if told else RAW.check(arguments) == CheckedArguments(arguments, arguments)


class Loose(BaseModel):
    anything: Any = None
    words: list[str] = []
    named: dict[str, float] = {}
    change: Change | str | None = None


@pytest.mark.parametrize("model", [Arguments, Loose])
@given(data=st.data())
def test_S6_a_model_answers_whatever_it_is_given(model: type[BaseModel], data: st.DataObject) -> None:
    names = st.sampled_from([*model.model_fields, "path"])
    arguments = data.draw(st.dictionaries(names, JSON.filter(_is_json), max_size=6) | JSON)
    schema = ModelSchema(model, model.model_json_schema())
    told = answer(schema, arguments)
    if told:
        assert " Its parameters: " in told
    else:
        written = schema.check(arguments).written
        assert schema.check(dict(written)).written == written


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    st.booleans()
    | st.sampled_from(
        [
            {"type": "string"},
            {"type": ["integer", "null"]},
            {"enum": ["a", 1]},
            {"const": 0},
            {"minimum": 1, "exclusiveMaximum": 5},
            {"pattern": "^a"},
            {"maxLength": 1, "minItems": 1, "uniqueItems": True},
            {"$ref": "#"},
        ]
    ),
    lambda inner: (
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)})
        | st.fixed_dictionaries({"oneOf": st.lists(inner, min_size=1, max_size=3)})
        | st.fixed_dictionaries({"not": inner})
        | st.fixed_dictionaries({"items": inner})
        | st.fixed_dictionaries(
            {"properties": st.dictionaries(st.sampled_from(["a", "0", "b/c", "ä"]), inner, max_size=3)},
            optional={
                "additionalProperties": inner,
                "required": st.just(["a"]),
                "unevaluatedProperties": st.just(False),
            },
        )
    ),
    max_leaves=8,
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, True, 0, 1, 7, 1.5, "", "a", "b"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "0", "b/c", "ä", "c"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(schema=SCHEMAS, value=VALUES)
def test_S6_any_schema_finds_words_for_exactly_what_does_not_fit(schema: Any, value: Any) -> None:
    parameters: Any = {"type": "object", "properties": {"a": schema}, "additionalProperties": False}
    try:
        checker = JsonSchema(parameters)
    except BadInput:
        return
    told = answer(checker, {"a": value})
    assert (told == "") == jsonschema_rs.is_valid(parameters, {"a": value})
    assert told == "" or told.startswith("a")


# Schemas that take for ever


def fan(depth: int, how: str, last: JsonValue) -> dict[str, JsonValue]:
    """Definitions each of which refers to the next one twice."""
    steps: dict[str, JsonValue] = {
        f"a{step}": {how: [{"$ref": f"#/$defs/a{step + 1}"}, {"$ref": f"#/$defs/a{step + 1}"}]} for step in range(depth)
    }
    return {**steps, f"a{depth}": last}


@pytest.fixture
def quick_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[HelperProcess]:
    """A process that checks by schemas and gives up sooner."""
    process = HelperProcess("holdfast.activities.registry.json_schema_worker", cpu_seconds=0.2)
    monkeypatch.setattr(json_schema, "SCHEMA_PROCESS", process)
    yield process
    process.close()


@pytest.mark.usefixtures("quick_process")
def test_S6_a_schema_that_takes_for_ever_to_compile_is_refused_and_costs_nothing_else() -> None:
    bomb: Any = {"unevaluatedProperties": False, "allOf": [{"$ref": "#/$defs/a0"}], "$defs": fan(40, "anyOf", {})}
    with pytest.raises(SchemaTooHard, match="takes too long"):
        JsonSchema(bomb).compile()
    assert RAW.check({"name": "a"}).written == {"name": "a"}


def test_S6_arguments_that_take_for_ever_to_check_are_refused_and_then_not_tried_any_more(
    quick_process: HelperProcess,
) -> None:
    bomb: Any = {"properties": {"x": {"$ref": "#/$defs/a0"}}, "$defs": fan(40, "allOf", {"type": "string"})}
    schema = JsonSchema(bomb)
    schema.compile()
    died = []
    for _ in range(MAX_DEATHS + 1):
        assert RAW.check({"name": "a"}).written == {"name": "a"}
        with pytest.raises(SchemaTooHard):
            schema.check({"x": "a"})
        died.append(quick_process.pid is None)
    assert died == [True] * MAX_DEATHS + [False]


@pytest.mark.usefixtures("quick_process")
def test_S6_one_that_refers_to_itself_twice_is_refused_for_deep_arguments_only() -> None:
    twice: JsonValue = {"allOf": [{"$ref": "#/$defs/node"}, {"$ref": "#/$defs/node"}]}
    schema = JsonSchema({"$ref": "#/$defs/node", "$defs": {"node": {"properties": {"c": twice}}}})
    deep: JsonValue = {}
    for _ in range(60):
        deep = {"c": deep}
    with pytest.raises(SchemaTooHard):
        schema.check(deep)
    assert schema.check({"c": {"c": {}}}).written == {"c": {"c": {}}}


def test_S6_the_process_that_checks_may_die_between_two_checks() -> None:
    assert RAW.check({"name": "a"})
    assert SCHEMA_PROCESS.pid
    os.kill(SCHEMA_PROCESS.pid, signal.SIGKILL)
    os.waitid(os.P_PID, SCHEMA_PROCESS.pid, os.WEXITED | os.WNOWAIT)
    assert RAW.check({"name": "b"}).written == {"name": "b"}
