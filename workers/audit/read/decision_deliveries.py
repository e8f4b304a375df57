"""Which deliveries of a decision counted, as a replay tells: the same decision may be sent often, and counts once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from holdfast.domain.approvals.approval import Decision
from holdfast.domain.turn.turn_state import TurnState
from holdfast.workers.audit.read.history_facts import Message


@dataclass
class Deliveries:
    """By the id of an update, and by the place of a signal among the signals of its name."""

    updates: dict[str, bool] = field(default_factory=dict)
    signals: list[bool] = field(default_factory=list)

    @contextmanager
    def watch_signal(self, state: object, body: Any) -> Iterator[None]:
        """A signal that is being delivered."""
        self.signals.append(False)
        place = len(self.signals) - 1
        with self._watch_delivery(state, body) as counted:
            yield
        self.signals[place] = counted()

    @contextmanager
    def watch_update(self, state: object, id: str, body: Any) -> Iterator[None]:
        """An update that is being handled; one that fails does not count."""
        self.updates[id] = False
        with self._watch_delivery(state, body) as counted:
            yield
        self.updates[id] = counted()

    @contextmanager
    def _watch_delivery(self, state: object, body: Any) -> Iterator[Any]:
        decision = _parse_decision(body)
        log = state.decisions if isinstance(state, TurnState) else None
        known = log is not None and decision is not None and log.has_decision(decision)

        def is_newly_counted() -> bool:
            return log is not None and decision is not None and not known and log.has_decision(decision)

        yield is_newly_counted

    def has_counted(self, message: Message, signals_before: int) -> bool:
        """Did this one count? `signals_before`: of its name, in the same run."""
        if message.how == "update":
            return self.updates.get(message.id, False)
        return signals_before < len(self.signals) and self.signals[signals_before]


def _parse_decision(body: Any) -> Decision | None:
    try:
        return Decision.model_validate(body)
    except ValidationError:
        return None
