"""How many parts of a result are taken: known to the wires and to the results, and importing nothing."""

from __future__ import annotations

PARTS_LIMIT = 1_000
