"""One function response for each call, whatever became of it (S34)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.domain.content import (
    NO_OUTPUT,
    BlobPart,
    CallError,
    DataPart,
    FunctionResponse,
    Part,
    Response,
    TextPart,
    build_function_response,
)

KEPT = BlobPart.from_bytes(b"png", "image/png", name="a.png").model_copy(
    update={"whole": "/outputs/a.png", "data": None}
)
LOST = KEPT.model_copy(update={"whole": ""})
FRESH = BlobPart.from_bytes(b"png", "image/png")


def answered(*parts: Part, error: str | None = None, **more: Any) -> FunctionResponse:
    status = "error" if error is not None else "success"
    reason = CallError(type="broken", message=error) if error is not None else None
    given: dict[str, Any] = {"call_id": "b1c1", "tool": "work", "status": status, "parts": parts, "error": reason}
    return build_function_response(Response.model_validate({**given, **more}))


@pytest.mark.parametrize(
    ("parts", "output"),
    [
        ((), NO_OUTPUT),
        ((TextPart(text=""),), NO_OUTPUT),
        ((TextPart(text="text"),), "text"),
        ((TextPart(text="one"), TextPart(text="two")), "one\ntwo"),
        ((DataPart(value={"a": [1]}),), {"a": [1]}),
        ((DataPart(value=[]),), []),
        ((DataPart(value=0),), 0),
        ((DataPart(value=False),), False),
        ((DataPart(value=""),), ""),
        ((DataPart(value=None),), "null"),
        ((DataPart(value={"a": 1}), TextPart(text="two")), '{"a": 1}\ntwo'),
        ((KEPT,), "[a.png, image/png, 3 bytes, kept in /outputs/a.png]"),
        ((LOST,), "[a.png, image/png, 3 bytes, not kept]"),
        ((TextPart(text="see"), KEPT), "see\n[a.png, image/png, 3 bytes, kept in /outputs/a.png]"),
    ],
)
def test_S34_parts_become_the_output(parts: tuple[Part, ...], output: object) -> None:
    assert answered(*parts).response == {"output": output}


def test_S34_error_comes_first_and_keeps_what_there_was() -> None:
    assert answered(error="It broke").response == {"error": "It broke"}
    assert answered(TextPart(text="half"), error="It broke").response == {"error": "It broke", "output": "half"}
    assert answered(DataPart(value=[1]), error="It broke").response == {"error": "It broke", "output": [1]}
    assert answered(TextPart(text=""), error="").response == {"error": ""}


def test_S34_response_is_addressed_as_the_model_called_it() -> None:
    assert (answered(model_id="toolu_1").id, answered(model_id="toolu_1").name) == ("toolu_1", "work")
    assert answered(model_id=None).id == answered(model_id="").id == "b1c1"


def test_S34_only_bytes_that_are_kept_travel_beside_it() -> None:
    assert answered(KEPT, LOST, FRESH, TextPart(text="x"), KEPT).media == (KEPT, KEPT)


TEXTS = st.text(max_size=20) | st.sampled_from(["\ud800", "half \udcff", "\x1b[31m", "\0"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
PARTS: st.SearchStrategy[Part] = (
    st.builds(TextPart, text=TEXTS, whole=st.none() | st.just("/outputs/x.txt"))
    | st.builds(DataPart, value=VALUES)
    | st.builds(BlobPart.from_bytes, st.binary(max_size=9), TEXTS, name=st.none() | TEXTS)
    | st.sampled_from([KEPT, LOST])
)
ERRORS = st.none() | st.builds(CallError, type=st.just("broken"), message=TEXTS)
STATUSES = st.sampled_from(["success", "error", "cancelled"])


@example(parts=[DataPart(value="0")], error=None, status="success", model_id=None)
@example(parts=[DataPart(value="")], error=None, status="success", model_id=None)
@given(parts=st.lists(PARTS, max_size=4), error=ERRORS, status=STATUSES, model_id=st.none() | st.text(max_size=5))
def test_S34_every_response_becomes_one_that_can_be_sent(
    parts: list[Part], error: CallError | None, status: Any, model_id: str | None
) -> None:
    response = Response(call_id="b1c1", model_id=model_id, tool="work", status=status, parts=tuple(parts), error=error)
    made = build_function_response(response)
    assert made.response
    assert set(made.response) <= {"output", "error"}
    assert ("error" in made.response) == (error is not None)
    sent = json.dumps(made.response, ensure_ascii=False, allow_nan=False)
    assert sent.encode()
    output = made.response.get("output", "")
    said = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
    for part in parts:
        alone = isinstance(part, DataPart) and part.value == output  # a lone value stays what it is
        assert part.text in said or alone
    for media in made.media:
        assert media.whole
        assert media in parts
    again = FunctionResponse.model_validate_json(made.model_dump_json())
    assert again == made.model_copy(
        update={"media": tuple(blob.model_copy(update={"data": None}) for blob in made.media)}
    )
