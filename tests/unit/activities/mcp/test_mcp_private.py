"""The `mcp` package still calls, and still has, each private name that `mcp_private` overrides or uses.

The real package does the work, against a server that is a function: a test fails when a step that we take over is no
longer part of it.
"""

from __future__ import annotations

import httpx2
import pytest
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared import _otel
from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind

from holdfast.activities.mcp.auth.oauth import TokenStorage
from holdfast.activities.mcp.mcp_private import OpenOAuthProvider, disable_tracing

SERVER = "https://server.example/mcp"
ISSUERS = ["https://first.example", "https://second.example"]


class Refused(Exception):
    """A step ends the flow."""


class NotingProvider(OpenOAuthProvider, ClientCredentialsOAuthProvider):
    """Notes each step, takes the second server, and ends the flow at one step if that is wanted."""

    def __init__(self, refused: str = "") -> None:
        super().__init__(SERVER, TokenStorage(), "us", "secret", issuer=ISSUERS[1])
        self.steps: list[str] = []
        self._refused = refused

    def _note(self, step: str) -> None:
        self.steps.append(step)
        if step == self._refused:
            raise Refused(step)

    def select_server(self, advertised: list[str]) -> str:
        self._note("select_server")
        return super().select_server(advertised)

    def check_server(self) -> None:
        assert self.context.oauth_metadata, "it is known by now"
        assert self.context.current_tokens is None
        self._note(f"check_server {self.context.oauth_metadata.issuer}")

    def check_response(self, response: httpx2.Response) -> None:
        self._note(f"check_response {response.status_code}")


def metadata(issuer: str) -> dict[str, object]:
    return {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/authorize",
        "token_endpoint": f"{issuer}/token",
        "response_types_supported": ["code"],
    }


async def answer(request: httpx2.Request) -> httpx2.Response:
    """An MCP server, and two authorization servers."""
    issuer = f"https://{request.url.host}"
    if "oauth-protected-resource" in request.url.path:
        return httpx2.Response(200, json={"resource": SERVER, "authorization_servers": ISSUERS})
    if issuer in ISSUERS and "oauth-authorization-server" in request.url.path:
        return httpx2.Response(200, json=metadata(issuer))
    if issuer in ISSUERS and request.url.path == "/token":
        grant = "refreshed" if b"refresh_token" in await request.aread() else "given"
        return httpx2.Response(200, json={"access_token": f"{grant} by {request.url.host}", "token_type": "Bearer"})
    return httpx2.Response(200 if "authorization" in request.headers else 401)


async def test_every_step_of_a_login_can_be_overridden() -> None:
    provider = NotingProvider()
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer), auth=provider) as client:
        assert (await client.get(SERVER)).status_code == 200
    assert provider.steps == ["select_server", "check_server https://second.example", "check_response 200"]
    assert provider.context.current_tokens
    assert provider.context.current_tokens.access_token == "given by second.example"


@pytest.mark.parametrize("step", ["select_server", "check_server https://second.example", "check_response 200"])
async def test_a_step_that_raises_ends_the_login_without_a_token(step: str) -> None:
    provider = NotingProvider(step)
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer), auth=provider) as client:
        with pytest.raises(Refused, match=step):
            await client.get(SERVER)
    assert provider.context.current_tokens is None


async def test_tokens_are_refreshed_where_the_context_says() -> None:
    provider = NotingProvider()
    provider.context.client_info = OAuthClientInformationFull(client_id="us", redirect_uris=None)
    provider.context.oauth_metadata = OAuthMetadata.model_validate(metadata(ISSUERS[0]))
    provider.context.current_tokens = OAuthToken(access_token="old", refresh_token="again")
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
        assert await provider.refresh(client)
    assert provider.steps == ["check_response 200"]
    assert provider.context.current_tokens.access_token == "refreshed by first.example"


def test_spans_of_the_package_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_otel, "_tracer", TracerProvider().get_tracer("mcp-python-sdk"))
    with _otel.otel_span("call", kind=SpanKind.CLIENT) as span:
        assert span.is_recording(), "there is something to disable"
    disable_tracing()
    with _otel.otel_span("call", kind=SpanKind.CLIENT) as span:
        assert not span.is_recording()
