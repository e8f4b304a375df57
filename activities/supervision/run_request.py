"""What a worker hands to a supervisor, in memory and nowhere else: words and environments may hold secrets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence


class Request:
    """One command, and how long it may run in which way."""

    def __init__(
        self,
        *,
        key: str,
        digest: str,
        words: Sequence[str],
        directory: str,
        environment: Mapping[str, str],
        seconds: float,
        lease_seconds: float,
        grace_seconds: float,
        most_bytes: int,
        sandboxed: bool = False,
        follow: bool = False,
        input: bytes = b"",
        owner: Mapping[str, str] | None = None,
    ) -> None:
        self.key = key
        self.digest = digest
        self.words = list(words)
        self.directory = directory
        self.environment = dict(environment)
        self.seconds = seconds
        self.lease_seconds = lease_seconds
        self.grace_seconds = grace_seconds
        self.most_bytes = most_bytes
        self.sandboxed = sandboxed
        self.follow = follow
        self.input = input
        self.owner = dict(owner or {})
        """Of a background command: whose it is (`ended.Owner`)."""

    def pack(self) -> bytes:
        """As bytes."""
        fields = {name: value for name, value in vars(self).items() if name != "input"}
        return json.dumps(fields).encode() + b"\n" + self.input

    @classmethod
    def unpack(cls, data: bytes) -> Request:
        """From bytes."""
        head, _, input = data.partition(b"\n")
        return cls(**{**json.loads(head), "input": input})
