"""What a process has counted already, for a while: a workflow task that the server refuses is run a second time.

It refuses one when a message arrives just as the turn ends. The second run is no replay, and finds the same again.
"""

from __future__ import annotations

from collections import OrderedDict

CountedKey = tuple[str | int | None, ...]
"""Which run of a turn, and what of it."""
MAX_REMEMBERED = 20_000
"""A refused task is run again at once: what was counted long ago does not come back."""


class CountedKeys:
    """The newest of what was counted. One thread at a time may ask."""

    def __init__(self, limit: int = MAX_REMEMBERED) -> None:
        self._limit = limit
        self._keys: OrderedDict[CountedKey, None] = OrderedDict()

    def add_if_new(self, key: CountedKey) -> bool:
        """Was this not counted before? From now on it was."""
        known = key in self._keys
        self._keys[key] = None
        self._keys.move_to_end(key)
        if len(self._keys) > self._limit:
            self._keys.popitem(last=False)
        return not known
