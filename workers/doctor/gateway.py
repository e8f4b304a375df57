"""The HTTP endpoint: who may come in, and is the file that says so in order."""

from __future__ import annotations

from holdfast.errors import HoldfastError
from holdfast.workers.doctor.checks import Check, Surroundings, aside
from holdfast.workers.doctor.findings import Finding, ok, problem, warning


async def _tokens(around: Surroundings) -> list[Finding]:
    from holdfast.workers.tokens import TokenFile

    try:
        tokens = await aside(TokenFile(around.settings.tokens_file).all)
    except HoldfastError as error:
        return [problem(f"nobody comes in by HTTP: {error}", f"correct {around.settings.tokens_file}, or move it away")]
    over = [token.name for token in tokens if token.expired(around.now())]
    if over:
        do = f"holdfast tokens revoke {over[0]}, and create another if it is still needed"
        return [warning(f"the tokens of {', '.join(sorted(over))} are no longer good", do)]
    return [
        ok(f"{len(tokens)} tokens" if tokens else "nobody has a token yet: `holdfast tokens create NAME` makes one")
    ]


CHECKS = (Check("gateway", _tokens),)
