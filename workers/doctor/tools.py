"""Tools, rules and hooks: everything that a worker loads at its start, as it would load it here."""

from __future__ import annotations

from holdfast.content import shorten
from holdfast.errors import BadInput, HoldfastError
from holdfast.settings import Settings
from holdfast.workers.doctor.checks import Check, Surroundings, aside
from holdfast.workers.doctor.findings import Finding, ok, problem, warning

MOST = 10
"""Tools that cannot be used, and are told one by one."""
ASKING = 5.0
"""Seconds: for the shared ledger to answer."""
LOADING = 60.0
"""Seconds: commands that declare tools have limits of their own."""


async def _tools(around: Surroundings) -> list[Finding]:
    from holdfast.activities.catalogue.loading import load_registry
    from holdfast.activities.mcp.servers import Servers
    from holdfast.activities.outputs import OutputStore

    settings, limits = around.settings, around.settings.limits
    outputs = OutputStore(settings.outputs, limits.output_characters, limits.saved_output_bytes)
    servers = Servers(settings.mcp, settings.mcp_known)  # known by name: they are looked at on their own
    try:
        registry = await aside(lambda: load_registry(settings, outputs, (), servers))
    except BadInput as error:
        return [problem(f"tools cannot be loaded: {error}", "correct it: workers do not start like this")]
    found = [ok(f"{len(registry.entries)} can be used")]
    told = {refusal.source for refusal in servers.refused}
    wrong = [one for one in registry.problems if one.source not in told]
    for one in wrong[:MOST]:
        says = f"not available, from {one.source}: {shorten(one.reason, 500)}"
        found.append(warning(says, "correct it, or leave it out of the settings; `holdfast tools list` shows the rest"))
    if (more := len(wrong) - MOST) > 0:
        found.append(warning(f"and {more} more cannot be used", "holdfast tools list"))
    return found


async def _policy(around: Surroundings) -> list[Finding]:
    from holdfast.activities.covering import check_roles
    from holdfast.activities.policy.loading import load_policy, sources_of
    from holdfast.activities.policy.rules import Tier
    from holdfast.activities.policy.saved import load_saved
    from holdfast.documents import complaint

    settings = around.settings
    sources = sources_of(settings)
    try:
        policy = await aside(lambda: load_policy(sources))
        check_roles(policy, settings.approvers)
    except HoldfastError as error:
        return [problem(str(error), "correct the file: workers do not start like this; holdfast policy check")]
    saved = await aside(lambda: load_saved(settings.granted))
    if saved.problems:
        do = "correct it, or move it away: no standing answer in it counts"
        return [problem(complaint(settings.granted, saved.problems), do)]
    yours = sum(source.tier is not Tier.DEFAULT for source in sources)
    files = f"{yours} files of yours" if yours else "none of yours"
    loaded = ok(f"the rules can be loaded: those that come with Holdfast, and {files}")
    return [loaded, *await _shared_answers(settings, len(saved.entries))]


async def _shared_answers(settings: Settings, own: int) -> list[Finding]:
    """Of the answers that hosts share, if they do; and of those that count here alone."""
    from holdfast.activities.policy.shared import open_shared

    if settings.ledger is None:
        return []
    try:
        shared = open_shared(settings, seconds=ASKING)
    except HoldfastError:
        return []  # the check of the ledger tells why
    if shared is None:
        return []
    await shared.look()
    await shared.rest()
    if shared.problem:
        do = "see to it: until then they allow nothing, and calls are asked about"
        return [problem(f"saved answers in the shared ledger cannot be gone by: {shorten(shared.problem, 500)}", do)]
    found = [ok(f"{len(shared.rules)} saved answers count on every host that shares the ledger")]
    if own:
        found.append(warning(f"{own} in {settings.granted} count on this host only", "holdfast grants share"))
    return found


async def _hooks(around: Surroundings) -> list[Finding]:
    from holdfast.activities.hooks.loading import load_hooks

    try:
        await aside(lambda: load_hooks(around.settings))
    except BadInput as error:
        return [problem(str(error), "correct it: workers do not start like this")]
    count = len(around.settings.hooks)
    return [ok(f"{count} of the settings, and all can be loaded" if count else "none in the settings")]


CHECKS = (
    Check("tools", _tools, seconds=LOADING),
    Check("policy", _policy),
    Check("hooks", _hooks),
)
