"""Telling an authorization server that a login is over, where it can be told (RFC 7009)."""

from __future__ import annotations

import httpx2
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthMetadata
from pydantic import AnyUrl

from holdfast.activities.mcp.auth.endpoints import AuthorizationTransport
from holdfast.activities.mcp.auth.login_errors import check_token_response, explain_refusal
from holdfast.activities.mcp.auth.login_store import Login, NotAuthorized
from holdfast.activities.mcp.auth.oauth import TokenStorage


async def revoke_login(login: Login, client_secret: str | None = None) -> None:
    """Have its tokens count no more. NotAuthorized with the reason when that was not done."""
    try:
        metadata = OAuthMetadata.model_validate(login.issuer) if login.issuer else None
        if metadata is None or metadata.revocation_endpoint is None:
            raise NotAuthorized("the authorization server cannot be told")
        data, headers = _build_request(login, client_secret)
        request = httpx2.Request("POST", str(metadata.revocation_endpoint), data=data, headers=headers)
        async with httpx2.AsyncClient(transport=AuthorizationTransport(login.url)) as client:
            check_token_response(await client.send(request))
    except Exception as error:
        raise explain_refusal(error) from None


def _build_request(login: Login, client_secret: str | None) -> tuple[dict[str, str], dict[str, str]]:
    """The longer-lived token: with it go the others."""
    client = OAuthClientInformationFull.model_validate(login.client)
    client.client_secret = client_secret or client.client_secret
    metadata = OAuthClientMetadata(redirect_uris=[AnyUrl("http://127.0.0.1")])
    context = OAuthContext(login.url, metadata, TokenStorage(client), None, None, client_info=client)
    kind = "refresh_token" if login.refresh_token else "access_token"
    data = {"token": login.refresh_token or login.access_token, "token_type_hint": kind, "client_id": client.client_id}
    return context.prepare_token_auth(data, {"Content-Type": "application/x-www-form-urlencoded"})
