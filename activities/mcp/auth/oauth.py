"""Makes, renews and revokes logins, with the OAuth client of the `mcp` package.

The package forgets where it got its tokens when its process ends, and repeats answers in logs and errors. So the
metadata that it found is stored with the tokens, and its errors are replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import httpx2
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.auth.oauth2 import OAuthContext
from mcp.client.auth.utils import issuers_match, union_scopes
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel, JsonValue

from holdfast.activities.mcp.auth.endpoints import (
    AuthorizationTransport,
    ProbeTransport,
    build_probe,
    format_address,
    is_allowed_address,
)
from holdfast.activities.mcp.auth.login_errors import build_denied, check_token_response, explain_refusal
from holdfast.activities.mcp.auth.login_store import Login, NotAuthorized, read_clock
from holdfast.activities.mcp.mcp_private import OpenOAuthProvider
from holdfast.activities.mcp.resolve import ResolvedServer
from holdfast.activities.mcp.sdk import quiet_logs
from holdfast.config.schema import McpOauthSettings

LONGEST_SECONDS = 10 * 365 * 86_400
"""The longest lifetime of a token, whatever its server says."""


class Person(Protocol):
    """A person who logs in with a browser."""

    @property
    def redirect_uri(self) -> str:
        """The address that the browser is sent to with the answer."""

    async def ask(self, url: str) -> Mapping[str, str]:
        """Let the person open this address; return the parameters that the browser came back with."""


@dataclass(frozen=True)
class LoginRequest:
    """The login that is wanted: at which server, with which settings, and the login before it."""

    resolved: ResolvedServer
    settings: McpOauthSettings
    before: Login | None = None

    @property
    def url(self) -> str:
        """The address of the server."""
        assert self.resolved.url, "a server that is reached"
        return self.resolved.url

    @property
    def resource(self) -> str:
        """The address as others may see it: user, query and fragment may be secret."""
        return str(httpx2.URL(self.url).copy_with(query=None, fragment=None, userinfo=b""))


async def run_login(request: LoginRequest, person: Person) -> Login:
    """Let a person log in. NotAuthorized with the reason when it fails."""
    return await _run_provider(_CodeProvider(request, person), request)


async def fetch_with_credentials(request: LoginRequest) -> Login:
    """Fetch a token with client credentials. NotAuthorized with the reason when it fails."""
    return await _run_provider(_CredentialsProvider(request), request)


async def refresh_login(login: Login, request: LoginRequest) -> Login:
    """Return the login with new tokens. Denied when it is not renewed any more, Unreachable when it may be later."""
    provider = _CodeProvider(request)
    try:
        async with httpx2.AsyncClient(transport=AuthorizationTransport(request.url, request.settings.issuer)) as client:
            await provider.refresh_tokens(login, client)
    except Exception as error:
        raise explain_refusal(error) from None
    renewed = _build_login(provider.context, request)
    return renewed.model_copy(update={"issuer": login.issuer, "resource": login.resource, "wanted": login.wanted})


async def _run_provider(provider: _CodeProvider | _CredentialsProvider, request: LoginRequest) -> Login:
    """Run the authorization that the package would run for one request."""
    probe = ProbeTransport(request.url, request.settings.issuer)
    try:
        async with httpx2.AsyncClient(transport=probe, auth=provider) as client:
            await client.send(build_probe(client, request.resolved))
        return _build_login(provider.context, request)
    except Exception as error:
        found = provider.context.oauth_metadata is not None
        if probe.status >= 400 and not probe.wants_authorization and not found:
            raise NotAuthorized(f"the server answered with HTTP status {probe.status}: is its url right?") from None
        raise explain_refusal(error, found=found, wanted=probe.wants_authorization) from None


class TokenStorage:
    """The storage that the package requires: it lives as long as the package's client."""

    def __init__(self, client: OAuthClientInformationFull | None = None) -> None:
        self._client = client

    async def get_tokens(self) -> OAuthToken | None:
        """Return None: the tokens of a login are set directly."""
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Do nothing: the tokens are taken from the context."""
        return

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return our registration."""
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Set our registration."""
        self._client = client_info


class _Provider(OpenOAuthProvider):
    """An OAuth client that checks the authorization server before it is asked for tokens."""

    _asked: LoginRequest

    def check_server(self) -> None:
        """Raise NotAuthorized unless this is the authorization server that the settings want."""
        _check_server(self.context, self._asked)

    def check_response(self, response: httpx2.Response) -> None:
        """Raise NotAuthorized with the reason when the answer is a refusal."""
        check_token_response(response)


class _CodeProvider(_Provider):
    """The authorization code grant with a person, or a refresh token."""

    def __init__(self, asked: LoginRequest, person: Person | None = None) -> None:
        self._asked, self._person, self._page = asked, person, ""
        redirects = [AnyUrl(person.redirect_uri)] if person else None
        client = _build_client_information(asked.resolved, redirects)
        metadata = OAuthClientMetadata(redirect_uris=redirects, client_name="Holdfast", software_id="holdfast")
        super().__init__(asked.resource, metadata, TokenStorage(client), self._keep_page, self._ask_person)

    async def refresh_tokens(self, login: Login, client: httpx2.AsyncClient) -> None:
        """Request new tokens from the authorization server of the login."""
        configured = _build_client_information(self._asked.resolved, None)
        known = OAuthClientInformationFull.model_validate(login.client)
        if configured and configured.client_id != known.client_id:
            raise build_denied("it was issued to another client than the one in the settings")
        known.client_secret = configured.client_secret if configured else known.client_secret
        context = self.context
        context.client_info = known
        context.oauth_metadata = OAuthMetadata.model_validate(login.issuer) if login.issuer else None
        context.protected_resource_metadata = (
            ProtectedResourceMetadata.model_validate(login.resource) if login.resource else None
        )
        context.current_tokens = OAuthToken(
            access_token=login.access_token, refresh_token=login.refresh_token, scope=login.scope
        )
        if not await self.refresh(client):
            raise NotAuthorized("the authorization server's answer is not a token")

    def select_server(self, advertised: list[str]) -> str:
        """Select the authorization server that the settings name, else the first."""
        wanted = self._asked.settings.issuer
        return next((one for one in advertised if wanted and issuers_match(one, wanted)), advertised[0])

    async def _keep_page(self, url: str) -> None:
        self._page = url

    async def _ask_person(self) -> AuthorizationCodeResult:
        assert self._person, "somebody logs in"
        if not is_allowed_address(page := httpx2.URL(self._page), httpx2.URL(self._asked.url)):
            raise NotAuthorized(f"the page to log in at, {format_address(page)}, is not encrypted")
        found = await self._person.ask(self._page)
        if "error" in found:
            raise build_denied(found["error"], found.get("error_description"))
        return AuthorizationCodeResult(code=found.get("code", ""), state=found.get("state"), iss=found.get("iss"))


class _CredentialsProvider(_Provider, ClientCredentialsOAuthProvider):
    """The client credentials grant."""

    def __init__(self, asked: LoginRequest) -> None:
        resolved, self._asked = asked.resolved, asked
        assert resolved.client_id, "the settings say so"
        assert resolved.client_secret, "the settings say so"
        issuer = asked.settings.issuer
        super().__init__(asked.resource, TokenStorage(), resolved.client_id, resolved.client_secret, issuer=issuer)


def _build_client_information(
    resolved: ResolvedServer, redirects: list[AnyUrl] | None
) -> OAuthClientInformationFull | None:
    """Our registration, if the settings have one."""
    if resolved.client_id is None:
        return None
    return OAuthClientInformationFull(
        client_id=resolved.client_id, client_secret=resolved.client_secret, redirect_uris=redirects
    )


def _check_server(context: OAuthContext, asked: LoginRequest) -> None:
    """Check the authorization server once it is known, and choose the scopes and the client authentication."""
    metadata, wanted = context.oauth_metadata, asked.settings.issuer
    if wanted and not (metadata and issuers_match(str(metadata.issuer), wanted)):
        leads = f"leads to {metadata.issuer}" if metadata else "does not lead there"
        raise NotAuthorized(f"the settings name the issuer {wanted}, and the server {leads}")
    methods = metadata.code_challenge_methods_supported if metadata else None
    if methods is not None and "S256" not in methods and asked.settings.grant == "authorization_code":
        raise NotAuthorized("the authorization server lacks PKCE (S256), without which a code could be stolen")
    scopes = " ".join(asked.settings.scopes) or context.client_metadata.scope
    if asked.before and asked.before.wanted:
        scopes = union_scopes(union_scopes(asked.before.scope, asked.before.wanted), scopes)
    context.client_metadata.scope = scopes
    client = context.client_info
    if client and (asked.resolved.client_id or client.token_endpoint_auth_method is None):
        client.token_endpoint_auth_method = _choose_method(client, metadata)


def _choose_method(client: OAuthClientInformationFull, metadata: OAuthMetadata | None) -> str:
    """Choose the client authentication where neither the settings nor the registration do."""
    if client.client_secret is None:
        return "none"
    known = (metadata.token_endpoint_auth_methods_supported if metadata else None) or ["client_secret_basic"]
    return "client_secret_post" if "client_secret_basic" not in known else "client_secret_basic"


def _build_login(context: OAuthContext, asked: LoginRequest) -> Login:
    """Build the login from what the package has found."""
    tokens, client, moment = context.current_tokens, context.client_info, read_clock()
    if tokens is None or client is None:
        raise NotAuthorized("the server requires no authorization: there is nothing to log in to")
    token = tokens.access_token
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise NotAuthorized("the authorization server issued a token that is not valid in a header")
    seconds = tokens.expires_in
    ends = None if seconds is None else moment + timedelta(seconds=min(max(seconds, 0), LONGEST_SECONDS))
    return Login(
        url=asked.url,
        grant=asked.settings.grant,
        client=_dump_model(client, without="client_secret" if asked.resolved.client_secret else None) or {},
        issuer=_dump_model(context.oauth_metadata),
        resource=_dump_model(context.protected_resource_metadata),
        access_token=token,
        refresh_token=tokens.refresh_token,
        scope=tokens.scope,
        since=moment,
        expires=ends,
    )


def _dump_model(value: BaseModel | None, without: str | None = None) -> dict[str, JsonValue] | None:
    if value is None:
        return None
    found: dict[str, Any] = value.model_dump(mode="json", exclude_none=True)
    return {name: one for name, one in found.items() if name != without}


quiet_logs()


async def revoke_login(login: Login, client_secret: str | None = None) -> None:
    """Revoke the tokens of a login at its authorization server (RFC 7009). NotAuthorized with the reason when it
    fails.
    """
    try:
        metadata = OAuthMetadata.model_validate(login.issuer) if login.issuer else None
        if metadata is None or metadata.revocation_endpoint is None:
            raise NotAuthorized("the authorization server has no revocation endpoint")
        data, headers = _build_request(login, client_secret)
        request = httpx2.Request("POST", str(metadata.revocation_endpoint), data=data, headers=headers)
        async with httpx2.AsyncClient(transport=AuthorizationTransport(login.url)) as client:
            check_token_response(await client.send(request))
    except Exception as error:
        raise explain_refusal(error) from None


def _build_request(login: Login, client_secret: str | None) -> tuple[dict[str, str], dict[str, str]]:
    """Revoke the longer-lived token, which revokes the others."""
    client = OAuthClientInformationFull.model_validate(login.client)
    client.client_secret = client_secret or client.client_secret
    metadata = OAuthClientMetadata(redirect_uris=[AnyUrl("http://127.0.0.1")])
    context = OAuthContext(login.url, metadata, TokenStorage(client), None, None, client_info=client)
    kind = "refresh_token" if login.refresh_token else "access_token"
    data = {"token": login.refresh_token or login.access_token, "token_type_hint": kind, "client_id": client.client_id}
    return context.prepare_token_auth(data, {"Content-Type": "application/x-www-form-urlencoded"})
