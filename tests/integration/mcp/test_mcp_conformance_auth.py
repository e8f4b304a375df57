"""The official suite's scenarios for clients on authorization, with our login, our tokens and our servers (S39).

Left out: `auth/2025-03-26-oauth-metadata-backcompat`, whose metadata names another issuer than it is found at, which is
refused (RFC 8414); and what we do not do, client credentials by a signed assertion and cross-app access.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.support.mcp.mcp_servers import conformance

ROOT = Path(__file__).parents[3]
SCENARIOS = (
    "metadata-default", "metadata-var1", "metadata-var2", "metadata-var3", "basic-cimd", "pre-registration",
    "scope-from-www-authenticate", "scope-from-scopes-supported", "scope-omitted-when-undefined", "scope-step-up",
    "scope-retry-limit", "token-endpoint-auth-basic", "token-endpoint-auth-post", "token-endpoint-auth-none",
    "2025-03-26-oauth-endpoint-fallback", "resource-mismatch", "offline-access-scope", "offline-access-not-supported",
    "client-credentials-basic",
)  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_S39_the_official_suite_finds_nothing_wrong_with_logins(scenario: str, tmp_path: Path) -> None:
    client = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.support.mcp.mcp_conformance_auth"]
    process = await asyncio.create_subprocess_exec(
        *conformance(f"auth/{scenario}", client),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(90):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()[-2_000:]
    assert "0 failed, 0 warnings" in output.decode()
