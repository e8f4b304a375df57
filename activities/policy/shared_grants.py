"""Saved grants in the ledger that hosts share: each is a row with its rule as TOML.

A worker checks for changes when it judges a call, at most once a second, so a grant that is saved or revoked anywhere
applies everywhere a second later. Rows that cannot be read, and a database that does not answer, allow nothing, like a
damaged file: what was refused before stays refused.

Only the command line writes these rows. A worker needs no more than to read them.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from holdfast.activities.ledger.open import open_database
from holdfast.activities.policy.conditions import CallFacts
from holdfast.activities.policy.grants import CandidateCall, GrantIndex
from holdfast.activities.policy.load_policy import format_rule
from holdfast.activities.policy.rules import Rule, RuleEffect
from holdfast.activities.policy.saved_grants import (
    SavedGrants,
    build_grant_rule,
    find_same_grant,
    load_saved,
    read_saved,
)
from holdfast.activities.policy.subject import Subject
from holdfast.config.settings import Settings
from holdfast.config.toml_document import FILE_LIMIT, FileContent, format_problems
from holdfast.domain.approvals.grants import Grant
from holdfast.errors import BadInput, HoldfastError
from holdfast.payloads.encryption import Seals
from holdfast.payloads.keyring import Keyring, load_keyring
from holdfast.util.findings import Finding, report_ok, report_problem, report_warning
from holdfast.util.text import escape_controls, shorten_text

if TYPE_CHECKING:
    from holdfast.activities.ledger.postgres_database import Connection, Database, Work

T = TypeVar("T")

FRESH_SECONDS = 1.0
"""The time for which rows are not read again."""
RETRY_SECONDS = 3.0
"""The pause after an error of the database."""
CHECK_SECONDS = 5.0
ANSWER_SECONDS = 2.0
"""The time that a judgement waits for the database."""
CHANGE_SECONDS = 10.0
"""The time that saving or revoking waits for the database."""
UNREACHABLE_NOTE = (
    "The grants that were saved in the shared ledger cannot be read now, and allow nothing until they can."
)
_SIZE_LIMIT = 4 * FILE_LIMIT
"""Bytes of all rows; encryption makes them longer than in a file."""
_LOCK_KEY = int.from_bytes(b"hf grant", "big")
"""The advisory lock for saving and revoking."""
_STAMP_QUERY = """
    SELECT coalesce(sum(octet_length(name) + octet_length(rule)), 0)::bigint AS size,
      md5(coalesce(string_agg(name || ' ' || xmin::text, ',' ORDER BY name), '')) AS stamp
    FROM holdfast_grants"""
_ROWS_QUERY = "SELECT name, rule FROM holdfast_grants ORDER BY saved_at, name"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
_LOGGER = logging.getLogger(__name__)


class _GrantRow(NamedTuple):
    """One row, with its rule or its problem."""

    sealed: str
    rule: Rule | None
    problem: str = ""


class SharedGrants:
    """The saved grants in a shared ledger, as this process last read them."""

    def __init__(self, database: Database, seals: Seals) -> None:
        self._database = database
        self._seals = seals
        self._rows: dict[str, _GrantRow] = {}
        self._known: dict[str, Rule] = {}
        """The last readable rule of each row."""
        self._grants = GrantIndex(())
        self._stamp: object = None
        self._unread: str | None = "they were not read yet"
        self._broken: str | None = None
        self._warned: str | None = None
        self._unclear = True
        self._until = 0.0
        self._looking: asyncio.Task[None] | None = None

    @property
    def location(self) -> str:
        """The address of the database, for people."""
        return self._database.location

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All rules that apply now, expired ones included."""
        return self._grants.rules

    @property
    def problem(self) -> str | None:
        """Why only refusals apply; None when all is in order."""
        return self._unread or self._broken

    @property
    def note(self) -> str | None:
        """See `GrantSource`."""
        return UNREACHABLE_NOTE if self.problem else None

    @property
    def may_miss_refusals(self) -> bool:
        """See `GrantSource`."""
        return self._unclear

    async def refresh(self) -> None:
        """See `GrantSource`. Takes two seconds at most, whatever the database does, and raises nothing."""
        if time.monotonic() < self._until:
            return
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._refresh_rows())
        await asyncio.shield(self._looking)

    def find_covering(self, call: Subject | CallFacts, now: datetime) -> Rule | None:
        """See `GrantSource`."""
        return self._grants.find_covering(CandidateCall(call), now)

    async def save(self, grant: Grant) -> str:
        """Add a grant, and return its name; a second call changes nothing. BadInput when it cannot be saved."""
        return await self.add(build_grant_rule(grant))

    async def add(self, rule: Rule) -> str:
        """Add the rule of a grant. See `save`."""
        text = _encode_rule(rule)

        async def add_row(connection: Connection) -> str:
            async with connection.transaction():
                rows = await self._lock_rows(connection)
                if bad := [row.problem for row in rows.values() if row.rule is None]:
                    raise BadInput(bad[0])
                there = find_same_grant(
                    rule, [row.rule for row in rows.values() if row.rule], escape_controls(self.location)
                )
                if there is not None:
                    return there
                name = rule.name or ""
                kept = self._seals.seal(text, _format_seal_name(name))
                if sum(len(row.sealed) for row in rows.values()) + len(kept) > FILE_LIMIT:
                    raise BadInput(f"{escape_controls(self.location)} is full: revoke grants that nobody needs")
                await connection.execute("INSERT INTO holdfast_grants (name, rule) VALUES ($1, $2)", name, kept)
                return name

        return await self._apply_change(add_row)

    async def remove(self, name: str) -> Rule | None:
        """Remove a grant; its rule, None when that cannot be read. BadInput when there is none of this name."""

        async def delete_row(connection: Connection) -> _GrantRow | None:
            async with connection.transaction():
                row = (await self._lock_rows(connection)).get(name)
                await connection.execute("DELETE FROM holdfast_grants WHERE name = $1", name)
                return row

        row = await self._apply_change(delete_row)
        if row is None:
            raise BadInput(f"{escape_controls(self.location)}: no saved grant is called {shorten_text(name, 100)!r}")
        return row.rule

    async def reseal_all(self) -> None:
        """Encrypt all readable rows with the present key."""

        async def reseal_rows(connection: Connection) -> None:
            async with connection.transaction():
                await self._lock_rows(connection)

        await self._apply_change(reseal_rows)

    async def disconnect(self) -> None:
        """Close the connection; the next use connects again."""
        if self._looking:
            await asyncio.wait({self._looking})
        await self._database.disconnect()

    async def _apply_change(self, work: Work[T]) -> T:
        try:
            return await self._database.run_query(work)
        finally:
            self._until = 0.0

    async def _lock_rows(self, connection: Connection) -> dict[str, _GrantRow]:
        """All rows, locked for this transaction, and encrypted with the present key."""
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK_KEY)
        await self._check_size(await connection.fetchrow(_STAMP_QUERY))
        rows = self._read_rows({row["name"]: row["rule"] for row in await connection.fetch(_ROWS_QUERY)})
        for name, row in rows.items():
            if row.rule and not self._seals.is_current(row.sealed):
                kept = self._seals.seal(format_rule(row.rule), _format_seal_name(name))
                await connection.execute("UPDATE holdfast_grants SET rule = $2 WHERE name = $1", name, kept)
        return rows

    async def _check_size(self, stamp: Any) -> None:
        if stamp["size"] > _SIZE_LIMIT:
            where = escape_controls(self.location)
            raise BadInput(f"the saved grants in {where} take over {_SIZE_LIMIT:,} bytes: remove some there")

    async def _refresh_rows(self) -> None:
        """Read the rows if they changed. Errors are kept as `problem`, not raised."""
        seconds = FRESH_SECONDS
        try:
            await self._read_changes()
        except Exception as error:  # whatever is in the tables
            seconds = RETRY_SECONDS
            words = str(error) if isinstance(error, HoldfastError) else type(error).__name__
            self._warn_once(words)
            self._unread = words
            self._grants = GrantIndex(_select_refusals(self._known))
        self._until = time.monotonic() + seconds

    async def _read_changes(self) -> None:
        stamp = await self._database.run_query(lambda connection: connection.fetchrow(_STAMP_QUERY))
        await self._check_size(stamp)
        if self._unread is None and stamp["stamp"] == self._stamp:
            return
        found = await self._database.run_query(lambda connection: connection.fetch(_ROWS_QUERY))
        rows = await asyncio.to_thread(self._read_rows, {row["name"]: row["rule"] for row in found})
        bad = {name: row.problem for name, row in rows.items() if row.rule is None}
        unknown = [name for name in bad if name not in self._known]
        rules = {name: row.rule for name, row in rows.items() if row.rule}
        known = {name: self._known[name] for name in bad if name in self._known} | rules
        self._warn_once(next(iter(bad.values()), None))
        self._rows, self._known = rows, known
        self._unclear, self._unread = bool(unknown), None
        self._broken = "\n".join(bad.values()) or None
        self._grants = GrantIndex(_select_refusals(known) if bad else tuple(known.values()))
        self._stamp = stamp["stamp"]

    def _warn_once(self, words: str | None) -> None:
        """Log a problem, unless it was the last one logged."""
        if words and words != self._warned:
            _LOGGER.warning("Saved grants allow nothing for now: %s", words)
        self._warned = words

    def _read_rows(self, found: Mapping[str, str]) -> dict[str, _GrantRow]:
        """Decrypt and parse rows; unchanged ones are taken from the last time."""
        before = self._rows
        return {
            name: before[name] if name in before and before[name].sealed == kept else self._read_row(name, kept)
            for name, kept in found.items()
        }

    def _read_row(self, name: str, sealed: str) -> _GrantRow:
        try:
            return _GrantRow(sealed, _decode_rule(name, self._seals.open(sealed, _format_seal_name(name))))
        except HoldfastError as error:
            shown = shorten_text(name, 100)
            place, problem = escape_controls(self.location), shorten_text(str(error), 500)
            why = f"the saved grant {shown!r} in {place} cannot be read: {problem}"
            return _GrantRow(sealed, None, f"{why}. `holdfast grants revoke {escape_controls(shown)}` takes it out")


class AllGrants:
    """The grants in the file of this host, and those that hosts share. A refusal of either comes first."""

    def __init__(self, own: SavedGrants, shared: SharedGrants) -> None:
        self.own = own
        self.shared = shared

    @property
    def may_miss_refusals(self) -> bool:
        """See `GrantSource`."""
        return self.own.may_miss_refusals or self.shared.may_miss_refusals

    @property
    def note(self) -> str | None:
        """See `GrantSource`."""
        return self.shared.note

    async def refresh(self) -> None:
        """See `GrantSource`."""
        await self.shared.refresh()

    async def disconnect(self) -> None:
        """Close the connection; the next use connects again."""
        await self.shared.disconnect()

    def find_covering(self, call: Subject | CallFacts, now: datetime) -> Rule | None:
        """See `GrantSource`."""
        found = [rule for one in (self.own, self.shared) if (rule := one.find_covering(call, now))]
        return min(found, key=lambda rule: rule.decision is not RuleEffect.DENY, default=None)


def open_shared_grants(
    settings: Settings, keyring: Keyring | None = None, *, seconds: float = ANSWER_SECONDS
) -> SharedGrants | None:
    """The grants that hosts share; None without a shared ledger. BadInput as for `open_database`."""
    if settings.ledger is None:
        return None
    return SharedGrants(
        open_database(settings.ledger, answer_seconds=seconds), Seals(keyring or load_keyring(settings))
    )


def open_saved_grants(settings: Settings, keyring: Keyring | None = None) -> SavedGrants | AllGrants:
    """All saved grants of a worker. BadInput as for `open_database`."""
    own, shared = SavedGrants(settings.grants_file), open_shared_grants(settings, keyring)
    return AllGrants(own, shared) if shared else own


def _select_refusals(rules: Mapping[str, Rule]) -> tuple[Rule, ...]:
    return tuple(rule for rule in rules.values() if rule.decision is RuleEffect.DENY)


def _format_seal_name(name: str) -> str:
    return f"grant {name}"


def _decode_rule(name: str, text: str) -> Rule:
    """The rule in a row, which must have the name of the row. BadInput for anything else."""
    if len(text) > FILE_LIMIT:
        raise BadInput("it is too long")
    loaded = read_saved(FileContent(Path(name), text.encode("utf-8", "replace")))
    if loaded.problems:
        raise BadInput("; ".join(problem.message for problem in loaded.problems[:3]))
    names: Sequence[str | None] = [entry.rule.name for entry in loaded.entries]
    if names != [name]:
        raise BadInput("it is not one rule of this name")
    return loaded.entries[0].rule


def _encode_rule(rule: Rule) -> str:
    """The rule as TOML. BadInput when it could not be read again."""
    name = rule.name or ""
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"no saved grant can be called {shorten_text(escape_controls(name), 100)!r}: letters, digits, _ and -"
        )
    text = format_rule(rule)
    _decode_rule(name, text)
    return text


async def check_saved_grants(settings: Settings) -> list[Finding]:
    """Check the saved grants of this host and those that hosts share. BadInput as for `open_database`."""
    saved = await asyncio.to_thread(load_saved, settings.grants_file)
    if saved.problems:
        do = "correct it, or move it away: no grant in it counts"
        return [report_problem(format_problems(settings.grants_file, saved.problems), do)]
    own, shared = len(saved.entries), open_shared_grants(settings, seconds=CHECK_SECONDS)
    if shared is None:
        return [report_ok(f"{own} saved grants count on this host")]
    await shared.refresh()
    await shared.disconnect()
    if shared.problem:
        says = f"saved grants in the shared ledger cannot be read: {shorten_text(shared.problem, 500)}"
        return [report_problem(says, "see to it: until then they allow nothing, and calls are asked about")]
    found = [report_ok(f"{len(shared.rules)} saved grants count on every host that shares the ledger")]
    do = "holdfast grants share"
    return found + ([report_warning(f"{own} in {settings.grants_file} count on this host only", do)] if own else [])
