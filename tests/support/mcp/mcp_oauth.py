"""An MCP server that wants OAuth, and its authorization server: two names of one port, so two origins.

    python mcp_oauth.py FOLDER PORT

The MCP server is at http://127.0.0.1:PORT/mcp, the authorization server at http://localhost:PORT. What they do wrong
is in FOLDER/options.json, read for every request (see `option`). What the latter is asked for is a line in FOLDER/log,
and every secret that it gives out a line in FOLDER/secrets. Nobody is asked anything: whoever comes is logged in.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlencode

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

FOLDER, PORT = Path(sys.argv[1]), int(sys.argv[2])
SERVER, ISSUER = f"http://127.0.0.1:{PORT}/mcp", f"http://localhost:{PORT}"
CONFIGURED = {"configured": "canary-configured-secret+/="}
clients: dict[str, dict[str, Any]] = {}
codes: dict[str, dict[str, str]] = {}
access: dict[str, tuple[float, str]] = {}
"""Until when each counts, and for what."""
refresh: dict[str, str] = {}
"""The scope of each that may be used, once."""
used: set[str] = set()
server = MCPServer("guarded")


def option(name: str, default: Any = None) -> Any:
    file = FOLDER / "options.json"
    return json.loads(file.read_text()).get(name, default) if file.exists() else default


def note(line: str, file: str = "log") -> None:
    with open(FOLDER / file, "a") as opened:
        opened.write(f"{line}\n")


def secret(kind: str) -> str:
    made = f"canary-{kind}-{secrets.token_urlsafe(18)}"
    note(made, "secrets")
    return made


# The MCP server


@server.tool()
async def whoami(ctx: Context) -> dict[str, Any]:
    """Tell what nobody should: the headers of the request."""
    return {"headers": dict(ctx.request_context.request.headers)}  # type: ignore[union-attr]


@server.tool()
async def act(n: int) -> str:
    """Do something that must not be done twice."""
    note(f"act {n}", "effects")
    return f"did {n}"


class Guard:
    """Lets nobody in without a token that counts."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        request = Request(scope)
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        until, granted = access.get(token, (0.0, ""))
        challenge = f'Bearer resource_metadata="http://127.0.0.1:{PORT}/.well-known/oauth-protected-resource/mcp"'
        if not option("open") and (until < time.time() or option("rejects")):
            note("rejected" if token else "anonymous", "server-log")
            words = f'{challenge}, scope="{option("scope", "read")}"'
            return await PlainTextResponse("no", 401, {"www-authenticate": words})(scope, receive, send)
        wanted = option("wants_scope")
        if wanted and wanted not in granted.split() and request.headers.get("mcp-method", "tools/call") == "tools/call":
            words = f'{challenge}, error="insufficient_scope", scope="{wanted}"'
            return await PlainTextResponse("no", 403, {"www-authenticate": words})(scope, receive, send)
        return await self.app(scope, receive, send)


async def resource(request: Request) -> Response:
    if option("undiscoverable"):
        return PlainTextResponse("no", 404)
    found = {"resource": option("resource", SERVER), "authorization_servers": [option("leads_to", ISSUER)]}
    return JSONResponse(found)


# The authorization server


async def metadata(request: Request) -> Response:
    if option("undiscoverable"):
        return PlainTextResponse("no", 404)
    found = {
        "issuer": option("issuer", ISSUER),
        "authorization_endpoint": option("authorization_endpoint", f"{ISSUER}/authorize"),
        "token_endpoint": option("token_endpoint", f"{ISSUER}/token"),
        "revocation_endpoint": f"{ISSUER}/revoke",
        "response_types_supported": ["code"],
        "code_challenge_methods_supported": option("pkce", ["S256"]),
        "authorization_response_iss_parameter_supported": True,
        "token_endpoint_auth_methods_supported": option("methods", ["client_secret_basic", "none"]),
    }
    if not option("no_registration"):
        found["registration_endpoint"] = f"{ISSUER}/register"
    return JSONResponse(found)


async def register(request: Request) -> Response:
    if option("no_registration"):
        return PlainTextResponse("no", 404)
    asked = await request.json()
    made = {**asked, "client_id": f"client-{len(clients)}", "client_secret": secret("client")}
    made["token_endpoint_auth_method"] = option("methods", ["client_secret_basic"])[0]
    clients[made["client_id"]] = made
    note(f"register {asked['redirect_uris'][0]}")
    return JSONResponse(made, 201)


async def authorize(request: Request) -> Response:
    asked = dict(request.query_params)
    note(f"authorize {asked.get('scope')} {asked.get('resource')}")
    known = clients.get(asked["client_id"], {"redirect_uris": [asked["redirect_uri"]]})
    if asked["redirect_uri"] not in known["redirect_uris"] or asked["code_challenge_method"] != "S256":
        return PlainTextResponse("no", 400)
    back = {"state": option("state", asked["state"]), "iss": option("iss", ISSUER)}
    if option("denies"):
        back |= {"error": "access_denied", "error_description": "Not \x1b[31mtoday"}
    else:
        code = back["code"] = secret("code")
        codes[code] = asked
    return RedirectResponse(f"{asked['redirect_uri']}?{urlencode(back)}", 302)


async def token(request: Request) -> Response:
    asked = {name: str(value) for name, value in (await request.form()).items()}
    grant = asked.get("grant_type", "")
    await anyio.sleep(option("delay", 0))
    if status := option("token_status"):
        note(f"token {grant} {status}")
        return PlainTextResponse(option("token_body", "no"), status)
    client = _client(request, asked)
    if client is None:
        return _refused(grant, "invalid_client", asked)
    if grant == "authorization_code":
        begun = codes.pop(asked["code"], None)
        verifier = hashlib.sha256(asked.get("code_verifier", "").encode()).digest()
        if begun is None or base64.urlsafe_b64encode(verifier).decode().rstrip("=") != begun["code_challenge"]:
            return _refused(grant, "invalid_grant", asked)
        return _given(grant, begun.get("scope", ""), asked.get("resource"))
    if grant == "refresh_token":
        given = asked["refresh_token"]
        if given in used:
            return _refused(grant, "reused", asked)
        if given not in refresh or option("revoked"):
            return _refused(grant, "invalid_grant", asked)
        scope = refresh.pop(given)
        used.add(given)
        return _given(grant, scope, asked.get("resource"))
    return _given(grant, asked.get("scope", ""), asked.get("resource"), refreshable=False)


def _client(request: Request, asked: dict[str, str]) -> str | None:
    """Who asks; None when they cannot prove it."""
    given = request.headers.get("authorization", "").removeprefix("Basic ")
    name, _, word = base64.b64decode(given).decode().partition(":") if given else (asked.get("client_id", ""), "", "")
    word = unquote(word) or asked.get("client_secret", "")
    known = CONFIGURED.get(name) or clients.get(name, {}).get("client_secret")
    return name if name == "public" or (known and known == word) else None


def _refused(grant: str, error: str, asked: dict[str, str]) -> Response:
    note(f"token {grant} {error}")
    told = f"no, {asked.get('refresh_token', '')} {asked.get('client_secret', '')}"  # it tells what it should not
    code = "invalid_grant" if error == "reused" else error
    return JSONResponse({"error": code, "error_description": told}, 400)


def _given(grant: str, scope: str, resource: str | None, *, refreshable: bool = True) -> Response:
    note(f"token {grant} given {resource}")
    seconds = option("expires_in", 3_600)
    made = {"access_token": secret("access"), "token_type": "bearer", "expires_in": seconds, "scope": scope}
    access[made["access_token"]] = (time.time() + (seconds or 3_600), scope)
    if refreshable and not option("no_refresh"):
        made["refresh_token"] = secret("refresh")
        refresh[made["refresh_token"]] = scope
    return JSONResponse({name: value for name, value in made.items() if value is not None})


async def revoke(request: Request) -> Response:
    asked = await request.form()
    refresh.pop(str(asked["token"]), None)
    access.clear()
    note(f"revoke {asked['token_type_hint']}")
    return Response()


async def expire(request: Request) -> Response:
    """For tests: every access token that was given is too old from now on."""
    access.clear()
    return Response()


def app() -> Starlette:
    inner = server.streamable_http_app(
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False)
    )
    routes = [
        Route("/.well-known/oauth-protected-resource/mcp", resource),
        Route("/.well-known/oauth-authorization-server", metadata),
        Route("/register", register, methods=["POST"]),
        Route("/authorize", authorize),
        Route("/token", token, methods=["POST"]),
        Route("/revoke", revoke, methods=["POST"]),
        Route("/expire", expire, methods=["POST"]),
        Route("/mcp", Guard(inner.routes[0].app)),  # type: ignore[attr-defined]
    ]
    return Starlette(routes=routes, lifespan=inner.router.lifespan_context)


if __name__ == "__main__":
    uvicorn.run(app(), host="localhost", port=PORT, log_level="critical")
