"""Private names of the `mcp` package that Holdfast uses, each with the reason. No other module touches one.

tests/unit/activities/mcp/test_mcp_private.py fails when one of them does something else, and pyproject.toml admits only
minor versions that it has passed with: raise the bound together with it.

Why: docs/decisions/0022-private-sdk-names.md.
"""

from __future__ import annotations

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.shared import _otel
from opentelemetry.trace import NoOpTracer


def disable_tracing() -> None:
    """Let the package open no spans: they hold what servers say, and there is no setting for that."""
    _otel._tracer = NoOpTracer()


class OpenOAuthProvider(OAuthClientProvider):
    """An OAuth client in which a subclass can override single steps of the flow.

    The package has one generator for the whole flow, and no public step between finding the authorization server and
    asking it. Also a mixin, to stand before another provider of the package.
    """

    def select_server(self, advertised: list[str]) -> str:
        """Return which of the advertised authorization servers is used. There is at least one."""
        return super()._select_authorization_server(advertised)

    def check_server(self) -> None:
        """Called when the authorization server is known and not yet asked for a token. What it raises ends the flow."""

    def check_response(self, response: httpx2.Response) -> None:
        """Called with the answer to a request for tokens, before it is read. What it raises ends the flow."""

    async def refresh(self, client: httpx2.AsyncClient) -> bool:
        """Send the refresh token of the context, and keep the new tokens there. False when the answer holds none."""
        response = await client.send(await self._refresh_token())
        self.check_response(response)
        return await self._handle_refresh_response(response)

    def _select_authorization_server(self, advertised: list[str]) -> str:
        return self.select_server(advertised)

    async def _perform_authorization(self) -> httpx2.Request:
        self.check_server()
        return await super()._perform_authorization()

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        self.check_response(response)
        await super()._handle_token_response(response)
