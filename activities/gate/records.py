"""Records the texts that histories name by digest: definitions of tools, rules, hooks, the catalogue (S43).

A verdict in a history has the digest of the rules that gave it; an audit months later shows the rules. Each text is
written once, as the bytes that its digest is over, under that digest: so it proves itself. A text that cannot be
written is missing in audits, and fails no call.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

from holdfast.activities.gate.gate import Gate
from holdfast.domain.calls.verdicts import Allow, Ask, Verdict
from holdfast.util.files import write_whole
from holdfast.util.json_values import encode_canonical

RecordKind = Literal["catalogue", "definition", "hooks", "policy"]
RECORD_KINDS: tuple[RecordKind, ...] = ("catalogue", "definition", "hooks", "policy")

_LOGGER = logging.getLogger(__name__)


class RecordFolder:
    """A folder of recorded texts, by kind and digest."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written_digests: set[str] = set()
        """Digests of the texts that this process has written or found there."""

    def locate_file(self, kind: RecordKind, digest: str) -> Path:
        """The file of a text, whether it exists or not."""
        return self._folder / kind / f"{digest}.json"

    async def record_verdicts(self, gate: Gate, verdicts: Collection[Verdict]) -> None:
        """Record the texts that these verdicts were given by. Texts that are recorded already cost nothing."""
        tools = [each.bound.tool for each in verdicts if isinstance(each, Allow | Ask)]
        digests = {tool.definition for tool in tools} | {gate.rules_digest, gate.hooks.digest, gate.catalogue_digest}
        if digests <= self._written_digests:
            return
        texts: list[tuple[RecordKind, Any]] = [
            ("policy", gate.digest_texts["policy"]),
            ("hooks", gate.digest_texts["hooks"]),
            ("catalogue", gate.digest_texts["catalogue"]),
            *(("definition", definition) for definition in gate.list_definitions({tool.name for tool in tools})),
        ]
        try:
            self._written_digests |= await asyncio.to_thread(self._write_all, texts)
        except OSError as error:
            _LOGGER.warning("Rules, hooks and tool definitions are not recorded for audits: %s", error.strerror)

    def _write_all(self, texts: list[tuple[RecordKind, Any]]) -> set[str]:
        """Write the texts that are not there yet; the digests of all of them."""
        written = set()
        for kind, value in texts:
            data = encode_canonical(value)
            digest = hashlib.sha256(data).hexdigest()
            file = self.locate_file(kind, digest)
            if not file.exists() or file.stat().st_size != len(data):
                for made in (file.parent.parent, file.parent):
                    made.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_whole(file, data)
            written.add(digest)
        return written
