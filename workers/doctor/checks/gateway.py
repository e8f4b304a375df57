"""The HTTP endpoint: who may come in, and is the file that says so in order."""

from __future__ import annotations

from holdfast.errors import HoldfastError
from holdfast.util.findings import Finding, ok, problem, warning
from holdfast.workers.doctor.check import Check, CheckContext, run_in_thread


async def _examine_tokens(around: CheckContext) -> list[Finding]:
    from holdfast.workers.gateway.tokens import TokenFile

    try:
        tokens = await run_in_thread(TokenFile(around.settings.tokens_file).read_all)
    except HoldfastError as error:
        return [problem(f"nobody comes in by HTTP: {error}", f"correct {around.settings.tokens_file}, or move it away")]
    over = [token.name for token in tokens if token.is_expired(around.now())]
    if over:
        do = f"holdfast tokens revoke {over[0]}, and create another if it is still needed"
        return [warning(f"the tokens of {', '.join(sorted(over))} are no longer good", do)]
    return [
        ok(f"{len(tokens)} tokens" if tokens else "nobody has a token yet: `holdfast tokens create NAME` makes one")
    ]


CHECKS = (Check("gateway", _examine_tokens),)
