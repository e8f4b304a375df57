"""What a fuzzer found."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Found:
    """Counts, and every problem with the input that shows it."""

    tried: int = 0
    telling: int = 0
    """Tries that could have shown a problem: a command that was fully known, a decision that was well formed."""
    problems: list[str] = field(default_factory=list)
