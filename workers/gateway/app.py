"""The application: its routes, each a thin layer over `Holdfast`. docs/reference/http.md describes them.

What a turn decides about a decision is not repeated here: its refusals are passed on with their codes.
"""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.client.client import Holdfast
from holdfast.domain.approvals.approval import ApprovalId
from holdfast.domain.calls.call import Call, Status
from holdfast.domain.turn.approval_view import build_approval_view, build_whole_approval
from holdfast.errors import BadInput, HoldfastError
from holdfast.util.json_values import digest_canonical
from holdfast.util.text import escape_controls
from holdfast.workers.gateway.access_log import AccessLog
from holdfast.workers.gateway.auth import HEALTH_PATH, READY_PATH, TOKEN_KEY, Guard, HostNames
from holdfast.workers.gateway.body_limits import BodyLimit
from holdfast.workers.gateway.decision_body import read_decision
from holdfast.workers.gateway.responses import Json, Problem, answer_error
from holdfast.workers.gateway.tokens import Token, TokenFile
from holdfast.workers.lookup.approvals import parse_turn_id
from holdfast.workers.runtime.health import NO_ANSWER, ServerProbe

MAX_ITEMS = 1_000
"""Items of one answer."""
ID_LIMIT = 1_000
"""Characters of an id; no turn has a longer one."""
UNCUT = 2**31
LEFT_AS_SIGNAL = "no worker answered, so the decision was sent as a signal; a worker applies it later"


class _AnyPath(Convertor[str]):
    """A path parameter with any characters: ids may hold slashes."""

    regex = "(?s:.+)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("anything", _AnyPath())


def build_application(holdfast: Holdfast, tokens: TokenFile, names: HostNames) -> Starlette:
    """Build the application over a connected client."""
    endpoint = _Endpoint(holdfast)
    app = Starlette(
        routes=[
            Route(HEALTH_PATH, _answer_health),
            Route(READY_PATH, endpoint.answer_readiness),
            Route("/v1/inbox", endpoint.list_inbox),
            Route("/v1/approvals/{id:anything}", endpoint.handle_approval, methods=["GET", "POST"]),
            Route("/v1/turns/{id:anything}", endpoint.show_turn),
        ],
        middleware=[Middleware(AccessLog), Middleware(BodyLimit), Middleware(Guard, tokens, names)],
        exception_handlers=dict.fromkeys((HTTPException, Problem, HoldfastError, Exception), answer_error),
    )
    app.router.redirect_slashes = False
    return app


async def _answer_health(request: Request) -> Response:
    return Json({"status": "ok"})


class _Endpoint:
    def __init__(self, holdfast: Holdfast) -> None:
        self._holdfast = holdfast
        self._server = ServerProbe(holdfast.client)

    async def answer_readiness(self, request: Request) -> Response:
        """Whether requests can be served: not without the Temporal server."""
        there = await self._server.is_answering()
        return Json({"status": "ok" if there else NO_ANSWER}, 200 if there else 503)

    async def list_inbox(self, request: Request) -> Response:
        """List pending approvals, of all turns or of one."""
        asked = _read_parameters(request, "turn", "limit")
        limit = _parse_limit(asked.get("limit"))
        turn = asked.get("turn") or None
        inbox = await self._holdfast.fetch_inbox()
        found = [item for item in inbox.approvals if turn in (None, parse_turn_id(item))]
        unread = {name: why for name, why in inbox.unread.items() if turn in (None, name)}
        shown = [item.model_dump(mode="json") for item in found[:limit]]
        return Json({"approvals": shown, "total": len(found), "unread": unread})

    async def handle_approval(self, request: Request) -> Response:
        """Show an approval, or decide on it."""
        _read_parameters(request)
        address = ApprovalId.parse(_read_turn_id(request))
        return await (
            self._decide_approval(request, address) if request.method == "POST" else self._show_approval(address)
        )

    async def _show_approval(self, address: ApprovalId) -> Response:
        """Show an approval, uncut."""
        turn = self._holdfast.get_turn(address.turn)
        try:
            call = await turn.fetch_call(address.call)
        except BadInput as error:
            raise Problem(404, "unknown_approval", str(error)) from None
        _check_waits(call, address)
        return Json(_approval_as_json(address.turn, call))

    async def _decide_approval(self, request: Request, address: ApprovalId) -> Response:
        """Decide in the name of the token."""
        body = await read_decision(request)
        token: Token = request.scope[TOKEN_KEY]
        taken = await self._holdfast.decide(
            str(address),
            body.outcome,
            digest=body.digest,
            by=token.name,
            # With the name of the token, so that another's decision is not taken for its repetition.
            decision_id=digest_canonical([token.name, body.decision_id]) if body.decision_id else None,
            **body.details,
        )
        if taken is None:
            left = {"approval_id": str(address), "call": address.call, "status": None, "counted": None}
            return Json({**left, "message": LEFT_AS_SIGNAL}, 202)
        return Json({"approval_id": str(address), **taken.model_dump(mode="json"), "counted": True})

    async def show_turn(self, request: Request) -> Response:
        """Show the view of a turn."""
        _read_parameters(request)
        view = await self._holdfast.get_turn(_read_turn_id(request)).fetch_view()
        return Json(view.model_dump(mode="json"))


def _read_turn_id(request: Request) -> str:
    found: str = request.path_params["id"]
    if len(found) > ID_LIMIT:
        raise Problem(404, "turn_not_found", f"an id has at most {ID_LIMIT:,} characters")
    return found


def _read_parameters(request: Request, *known: str) -> dict[str, str]:
    """The query parameters, each once. Errors do not repeat values: one may be a token."""
    given = request.query_params.multi_items()
    names = [name for name, _ in given]
    if unknown := [name for name in names if name not in known]:
        may = f"only {' and '.join(known)}" if known else "none"
        raise BadInput(f"unknown parameter {unknown[0][:40]!r}: there is {may}")
    if len(set(names)) < len(names):
        raise BadInput("a parameter is given twice")
    return dict(given)


def _parse_limit(text: str | None) -> int:
    if text is None:
        return MAX_ITEMS
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
    if not 1 <= number <= MAX_ITEMS:
        raise BadInput(f"limit must be a whole number from 1 to {MAX_ITEMS:,}")
    return number


def _check_waits(call: Call, address: ApprovalId) -> None:
    """Problem unless the call is pending under this approval id."""
    now = str(ApprovalId(address.turn, call.id, call.revision))
    if call.status is not Status.AWAITING_APPROVAL:
        raise Problem(404, "not_waiting", f"{str(address)!r} is not pending: the call is {call.status.value}")
    if address.revision < call.revision:
        raise Problem(404, "old_revision", f"{str(address)!r} was asked about again, as {now!r}")
    if address.revision > call.revision:
        raise Problem(404, "unknown_approval", f"{str(address)!r} does not exist yet: {now!r} is pending")


def _approval_as_json(turn_id: str, call: Call) -> dict[str, Any]:
    """An approval as the inbox has it, uncut; texts with every character visible, and the arguments as they are."""
    whole = build_whole_approval(turn_id, call)
    uncut = {name: _escape_value(getattr(whole, name)) for name in whole.model_fields_set}
    item = build_approval_view(turn_id, call, detail=UNCUT).model_copy(update={**uncut, "cut": False})
    return {
        **item.model_dump(mode="json", exclude={"since"}),
        "exact_arguments": call.bound.arguments if call.bound else {},
    }


def _escape_value(value: Any) -> Any:
    """Make every character of the texts visible."""
    if isinstance(value, tuple):
        return tuple(_escape_value(one) for one in value)
    return escape_controls(value) if isinstance(value, str) else value
