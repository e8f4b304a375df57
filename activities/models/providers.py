"""Models by name: of a provider that pydantic-ai knows, with its key from the environment; of a server of your own, by
its url.

Packages of providers are heavy and optional: each is imported when it is first used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack

from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model

from holdfast.config.provider_keys import MODEL_KEYS
from holdfast.config.schema import MediaKind, ModelServerSettings, ModelsSettings
from holdfast.errors import BadInput
from holdfast.util.findings import Finding, report_ok, report_problem
from holdfast.util.globs import Glob
from holdfast.util.secrets import Secret, Secrets

SHORTEST_KEY = 6
"""Characters: a shorter value is not a key, and would be found in other words."""
_AWS_KEYS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""The keys for Bedrock. Commands inherit them."""
NO_KEY = "none"
"""The key for a server that needs none, because its package needs one."""
_PROFILE_FLAGS: Mapping[MediaKind, str] = {
    "image": "supports_image_input",
    "document": "supports_document_input",
    "audio": "supports_audio_file_input",
}
"""The flags of pydantic-ai's model profiles."""


class Models:
    """The models of one worker."""

    def __init__(self, settings: ModelsSettings, environment: Mapping[str, str] = os.environ) -> None:
        self._settings = settings
        self._environment = environment
        self._allowed = [Glob(pattern) for pattern in settings.allow]
        self._known: dict[str, Model] = {}
        self._open = AsyncExitStack()

    @property
    def secrets(self) -> Secrets:
        """The keys of models, which some providers repeat in errors."""
        named = {*self._settings.key_variables, *MODEL_KEYS, *_AWS_KEYS}
        there = ((name, self._environment.get(name, "")) for name in named)
        return Secrets(Secret(name, value) for name, value in there if len(value) >= SHORTEST_KEY)

    async def get(self, name: str) -> Model:
        """Return the model with this name. BadInput, UserError or ImportError, with advice, when that fails."""
        if not any(glob.matches(name) for glob in self._allowed):
            allowed = ", ".join(self._settings.allow)
            raise BadInput(f"the model {name!r} is not allowed: the settings of this worker allow {allowed}")
        if name not in self._known:
            self._known[name] = await self._open.enter_async_context(self.build(name))
        return self._known[name]

    def find_window(self, name: str) -> int | None:
        """Return the context window in tokens that the settings give a server's models, if any."""
        server = self._settings.servers.get(name.partition(":")[0])
        return server.window if server else None

    def find_media_kinds(self, name: str, model: Model) -> frozenset[MediaKind]:
        """Return what kinds of media a model is shown, by the settings or by its package.

        Nothing is known of the models of a server of your own, and some fail for good on an image: so none, unless the
        settings say so.
        """
        for pattern, kinds in self._settings.takes.items():
            if Glob(pattern).matches(name):
                return frozenset(kinds)
        if name.partition(":")[0] in self._settings.servers:
            return frozenset()
        return frozenset(kind for kind, flag in _PROFILE_FLAGS.items() if model.profile.get(flag, True))

    async def close(self) -> None:
        """Close every connection."""
        self._known.clear()
        await self._open.aclose()

    def build(self, name: str) -> Model:
        """A new model, which connects when it is asked; raises as `get` does."""
        provider, _, model = name.partition(":")
        server = self._settings.servers.get(provider)
        if server and model:
            return _build_server_model(model, server, self._find_key(provider, server))
        if not model and name != "test":
            raise UserError(
                f"{name!r} is not a model: use provider:model, as in anthropic:claude-sonnet-4-5, or scripted"
            )
        return infer_model(name)

    def _find_key(self, name: str, server: ModelServerSettings) -> str:
        variable = server.key_variable
        if variable is None:
            return NO_KEY
        if not self._environment.get(variable):
            raise BadInput(f"the model server {name!r} needs its key in {variable}, which is not set for the worker")
        return self._environment[variable]


def _build_server_model(model: str, server: ModelServerSettings, key: str) -> Model:
    if server.speaks == "anthropic":
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        return AnthropicModel(model, provider=AnthropicProvider(base_url=server.url, api_key=key))
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return OpenAIChatModel(model, provider=OpenAIProvider(base_url=server.url, api_key=key))


def check_models(settings: ModelsSettings) -> Iterator[Finding]:
    """Have the default model and those of your servers what they need here? None is asked."""
    models = Models(settings)
    if settings.default is None:
        there = sorted(name for name in MODEL_KEYS if os.environ.get(name))
        yield report_ok(f"no default model is named; keys that are set: {', '.join(there) or 'none'}")
    for name in [*(f"{server}:any" for server in settings.servers), *filter(None, [settings.default])]:
        try:
            models.build(name)
        except (BadInput, UserError, ImportError) as error:
            why = str(error).partition(". ")[0]
            yield report_problem(f"{name.removesuffix(':any')}: {why}", "set it where workers run, or correct [models]")
        else:
            yield report_ok(f"{name.removesuffix(':any')} has what it needs")
