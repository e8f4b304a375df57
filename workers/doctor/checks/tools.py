"""Tools, rules and hooks: everything that a worker loads at its start, as it would load it here."""

from __future__ import annotations

from holdfast.config.settings import Settings
from holdfast.errors import BadInput, HoldfastError
from holdfast.util.findings import Finding, ok, problem, warning
from holdfast.util.text import shorten_text
from holdfast.workers.doctor.check import Check, CheckContext, run_in_thread

SHOWN_LIMIT = 10
"""Tools that cannot be used, and are told one by one."""
LEDGER_SECONDS = 5.0
"""Seconds: for the shared ledger to answer."""
LOADING_SECONDS = 60.0
"""Seconds: commands that declare tools have limits of their own."""


async def _examine_tools(around: CheckContext) -> list[Finding]:
    from holdfast.activities.loading import load_registry
    from holdfast.activities.mcp.servers import McpServers
    from holdfast.activities.process.output_store import OutputStore

    settings, limits = around.settings, around.settings.limits
    outputs = OutputStore(settings.outputs_folder, limits.output_characters, limits.saved_output_bytes)
    servers = McpServers(settings.mcp, settings.mcp_tools_folder)  # known by name: they are looked at on their own
    try:
        registry = await run_in_thread(lambda: load_registry(settings, outputs, (), servers))
    except BadInput as error:
        return [problem(f"tools cannot be loaded: {error}", "correct it: workers do not start like this")]
    found = [ok(f"{len(registry.entries)} can be used")]
    told = {refusal.source for refusal in servers.refusals}
    wrong = [one for one in registry.problems if one.source not in told]
    for one in wrong[:SHOWN_LIMIT]:
        says = f"not available, from {one.source}: {shorten_text(one.reason, 500)}"
        found.append(warning(says, "correct it, or leave it out of the settings; `holdfast tools list` shows the rest"))
    if (more := len(wrong) - SHOWN_LIMIT) > 0:
        found.append(warning(f"and {more} more cannot be used", "holdfast tools list"))
    return found


async def _examine_policy(around: CheckContext) -> list[Finding]:
    from holdfast.activities.gate.approval_checks import check_roles
    from holdfast.activities.policy.load_policy import list_sources, load_policy
    from holdfast.activities.policy.rules import Tier
    from holdfast.activities.policy.saved_grants import load_saved
    from holdfast.config.toml_document import format_problems

    settings = around.settings
    sources = list_sources(settings)
    try:
        policy = await run_in_thread(lambda: load_policy(sources))
        check_roles(policy, settings.approvers)
    except HoldfastError as error:
        return [problem(str(error), "correct the file: workers do not start like this; holdfast policy check")]
    saved = await run_in_thread(lambda: load_saved(settings.grants_file))
    if saved.problems:
        do = "correct it, or move it away: no standing answer in it counts"
        return [problem(format_problems(settings.grants_file, saved.problems), do)]
    yours = sum(source.tier is not Tier.DEFAULT for source in sources)
    files = f"{yours} files of yours" if yours else "none of yours"
    loaded = ok(f"the rules can be loaded: those that come with Holdfast, and {files}")
    return [loaded, *await _examine_shared_grants(settings, len(saved.entries))]


async def _examine_shared_grants(settings: Settings, own: int) -> list[Finding]:
    """Of the answers that hosts share, if they do; and of those that count here alone."""
    from holdfast.activities.policy.shared_grants import open_shared_grants

    if settings.ledger is None:
        return []
    try:
        shared = open_shared_grants(settings, seconds=LEDGER_SECONDS)
    except HoldfastError:
        return []  # the check of the ledger tells why
    if shared is None:
        return []
    await shared.refresh()
    await shared.disconnect()
    if shared.problem:
        do = "see to it: until then they allow nothing, and calls are asked about"
        return [
            problem(f"saved answers in the shared ledger cannot be gone by: {shorten_text(shared.problem, 500)}", do)
        ]
    found = [ok(f"{len(shared.rules)} saved answers count on every host that shares the ledger")]
    if own:
        found.append(warning(f"{own} in {settings.grants_file} count on this host only", "holdfast grants share"))
    return found


async def _examine_hooks(around: CheckContext) -> list[Finding]:
    from holdfast.activities.hooks.load_hooks import load_hooks

    try:
        await run_in_thread(lambda: load_hooks(around.settings))
    except BadInput as error:
        return [problem(str(error), "correct it: workers do not start like this")]
    count = len(around.settings.hooks)
    return [ok(f"{count} of the settings, and all can be loaded" if count else "none in the settings")]


CHECKS = (
    Check("tools", _examine_tools, seconds=LOADING_SECONDS),
    Check("policy", _examine_policy),
    Check("hooks", _examine_hooks),
)
