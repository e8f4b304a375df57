"""Models: which are named, and are their keys there. By name: no value of a key is looked at but for being there."""

from __future__ import annotations

from holdfast.config.provider_keys import MODEL_KEYS
from holdfast.util.findings import Finding, ok, problem, warning
from holdfast.workers.doctor.check import Check, CheckContext

NO_KEY = {"scripted", "test", "bedrock", "google-vertex", "ollama", "vllm"}
"""Providers that want none, or are told who we are in other ways."""
_KEY_PREFIXES = {
    "google-gla": ("GEMINI", "GOOGLE"),
    "google": ("GOOGLE", "GEMINI"),
    "cohere": ("CO",),
    "azure": ("AZURE_OPENAI",),
}


async def _examine_keys(around: CheckContext) -> list[Finding]:
    models, environment = around.settings.models, around.environment
    found = [
        _report_key(f"the model server {name!r}", (server.key_variable,), server.key_variable in environment)
        for name, server in models.servers.items()
        if server.key_variable
    ]
    default = models.default
    if default is None:
        there = sorted(name for name in MODEL_KEYS if environment.get(name))
        known = f"keys are set: {', '.join(there)}" if there else "no key of a provider is set"
        return [*found, ok(f"no default model is named; {known}")]
    provider = default.partition(":")[0]
    if provider in models.servers or provider in NO_KEY:
        return [*found, ok(f"{default} is the default")]
    names = _list_variables(provider)
    if not names:
        return [
            *found,
            warning(f"the default model {default!r} is of no provider that is known here", "see docs/how-to/models.md"),
        ]
    return [*found, _report_key(f"the default model {default!r}", names, any(environment.get(name) for name in names))]


def _list_variables(provider: str) -> tuple[str, ...]:
    """Those of which a provider wants one."""
    words = _KEY_PREFIXES.get(provider, (provider.partition("-")[0].upper(), provider.upper().replace("-", "_")))
    return tuple(name for name in dict.fromkeys(f"{word}_API_KEY" for word in words) if name in MODEL_KEYS)


def _report_key(what: str, names: tuple[str, ...], there: bool) -> Finding:
    if there:
        return ok(f"{what} has its key, in {' or '.join(names)}")
    return problem(f"{what} needs its key in {' or '.join(names)}, which is not set here", "set it where workers run")


CHECKS = (Check("models", _examine_keys),)
