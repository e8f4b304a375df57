"""The client that the conformance suite tests on authorization: somebody logs in, and a worker's server is used.

    python mcp_conformance_auth.py URL

The scenario and what it gives (credentials) are in the environment, as the suite has it. What a call lacks is asked for
by another login, a few times.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx2

from holdfast import Settings
from holdfast.activities.mcp.auth.bearer import LoginAuthorizer
from holdfast.activities.mcp.auth.login_store import LoginFiles
from holdfast.activities.mcp.servers import McpServers
from holdfast.activities.registry.registry import Registry
from holdfast.config.schema import McpOauthSettings, McpServerSettings, McpSettings
from holdfast.domain.calls.tool import ToolFailure
from holdfast.testing import FakeRun
from tests.support.mcp.mcp_guarded import somebody_logs_in

LOGINS = 3
CLIENT = "https://conformance-test.local/client-metadata.json"
"""What the suite expects of a client that is known by a document."""


async def oauth_of(scenario: str, context: dict[str, Any], url: str) -> McpOauthSettings | None:
    """The settings that a scenario is about."""
    if scenario == "auth/basic-cimd":
        return McpOauthSettings(client_id=CLIENT)
    if "client_secret" not in context:
        return None
    os.environ["CLIENT_SECRET"] = context["client_secret"]
    return McpOauthSettings(
        grant="client_credentials" if "client-credentials" in scenario else "authorization_code",
        client_id=context["client_id"],
        client_secret="${CLIENT_SECRET}",
        issuer=await _issuer(url),
    )


async def _issuer(url: str) -> str:
    """What a user would have been told together with the secret."""
    where = httpx2.URL(url).join("/.well-known/oauth-protected-resource/mcp")
    async with httpx2.AsyncClient() as client:
        found = (await client.get(where)).json()
    return str(found["authorization_servers"][0])


async def main(url: str, folder: Path) -> None:
    scenario, context = os.environ["MCP_CONFORMANCE_SCENARIO"], os.environ.get("MCP_CONFORMANCE_CONTEXT")
    oauth = await oauth_of(scenario, json.loads(context) if context else {}, url)
    server = McpServerSettings(url=url, trust=True, oauth=oauth)
    settings = Settings(data=folder, mcp=McpSettings(servers={"s": server}))
    for _ in range(LOGINS):
        if oauth is None or oauth.grant == "authorization_code":
            await somebody_logs_in(settings, "s")
        try:
            return await _use(settings)
        except ToolFailure as failure:
            print(failure.type, failure)
            if failure.type != "mcp_unauthorized":
                raise
    raise SystemExit("it was logged in to in vain")


async def _use(settings: Settings) -> None:
    """Call everything it has."""
    servers = McpServers(
        settings.mcp, settings.data / "mcp", authorize=LoginAuthorizer(LoginFiles(settings.mcp_logins_folder))
    )
    registry = Registry()
    servers.fill_registry(registry)
    async with servers.keep_connected():
        [status] = servers.statuses
        assert status.protocol, status.problem
        for entry in registry.entries:
            invocation = entry.tool.build(entry.schema.check({}).given, settings.data)
            print((await invocation.execute(FakeRun(settings.data))).parts)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(main(sys.argv[-1], Path(made)))
