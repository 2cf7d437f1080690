# SPDX-License-Identifier: Apache-2.0
"""What was changed in the BIOS of each host, and what stood there before.

A BMC keeps no journal for us, as the agent does on a host, so it is a record of ours:
``edgetune.bios.POP.HOST``. It is written before anything is asked of the BMC, and holds all
attributes as they were, for the day on which somebody needs more than what we changed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, field

from edgetune import PACK
from edgetune.base import clock
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.reading import check_is, decoded, read_document
from edgetune.base.errors import RefusedError
from edgetune.base.sanitize import command
from edgetune.net.result import HostResult
from edgetune.rollout.context import Context
from edgetune.rollout.store.records import value_of

SCHEMA = 1
_NEWEST = 100_000

Values = dict[str, object]


@dataclass
class Change:
    """What an attribute ``was``, and what it goes ``to``."""

    was: object
    to: object


@dataclass
class Entry:
    """What one rollout changed, by attribute; ``snapshot`` holds all of them as they were."""

    tuning: str
    digest: str
    rollout: str
    bios_version: str
    snapshot: dict[str, object]
    changes: dict[str, Change]
    job: str = ""
    at: float = field(default_factory=clock.wall)

    @property
    def to(self) -> Values:
        """The attributes as this rollout wants them."""
        return {name: change.to for name, change in self.changes.items()}


@dataclass
class BiosJournal:
    """The entries of one host, oldest first; ``system`` is the UUID of the machine they are of."""

    pop: str
    host: str
    system: str = ""
    entries: list[Entry] = field(default_factory=list)

    def of(self, rollout: str) -> Entry | None:
        """What that rollout changed, if it did."""
        return next((entry for entry in self.entries if entry.rollout == rollout), None)

    def standing(self, tuning: str) -> Entry | None:
        """The entry of a tuning, if there is one."""
        return next((entry for entry in self.entries if entry.tuning == tuning), None)

    @property
    def expected(self) -> Values:
        """The attributes that tunings hold, the later ones last."""
        return {name: to for entry in self.entries for name, to in entry.to.items()}

    def goes_back_to(self, entry: Entry) -> Values:
        """What taking an entry back leads to; what a later one holds is not ours to take back."""
        held = {name for later in self._after(entry) for name in later.changes}
        return {name: own.was for name, own in entry.changes.items() if name not in held}

    def hand_over(self, entry: Entry) -> None:
        """Let the entries after this one lead back to what was there before it."""
        for name, change in entry.changes.items():
            for later in self._after(entry):
                if name in later.changes:
                    later.changes[name].was = change.was
                    break

    def begin(self, system: str, entry: Entry) -> None:
        """Add an entry; RefusedError when earlier ones are of another machine."""
        self.refuse_another(system)
        self.system = system
        self.entries.append(entry)

    def refuse_another(self, system: str) -> None:
        """RefusedError when the entries are of another machine than this one."""
        if self.entries and system != self.system:
            rollouts = ", ".join(entry.rollout for entry in self.entries)
            adopts = command("adopt_host", host=self.host, rollout=self.entries[-1].rollout)
            raise RefusedError(
                f"the machine is {system}, and the BIOS of {self.system} was set by {rollouts}; "
                f"{adopts} takes a replaced machine"
            )

    def _after(self, entry: Entry) -> list[Entry]:
        return self.entries[self.entries.index(entry) + 1 :]


def load_journal(context: Context, pop: str, host: str) -> BiosJournal:
    """The journal of a host, empty where nothing was changed.

    RefusedError if it is too new, DamagedError if it cannot be read.
    """
    key = _key(pop, host)
    text = value_of(context.store, key)
    if text is None:
        return BiosJournal(pop, host)
    document = read_document(key, text)
    schema = document.pop("schema", None)
    check_is(key, "schema", type(schema) is int and 0 < schema < _NEWEST, "is none of ours")
    if schema != SCHEMA:
        raise RefusedError(
            f"{host}: its BIOS journal has schema {schema}, this edgetune understands "
            f"{SCHEMA}; go on with the version of the pack that wrote it"
        )
    journal = decoded(key, BiosJournal, document)
    check_is(key, "host", (journal.pop, journal.host) == (pop, host), "is that of another one")
    for name in ("system", "entries"):
        # Every version wrote them. Without them nothing would seem to stand in the BIOS.
        check_is(key, name, name in document, "is missing")
    return journal


def load_journals(
    context: Context, pop: str, hosts: Sequence[str]
) -> tuple[dict[str, BiosJournal], dict[str, HostResult]]:
    """The journals of hosts, and a failure for each host whose journal cannot be read."""
    journals: dict[str, BiosJournal] = {}
    failed: dict[str, HostResult] = {}
    for host in hosts:
        try:
            journals[host] = load_journal(context, pop, host)
        except RefusedError as error:
            failed[host] = HostResult(host, error=str(error), reason="failed")
    return journals, failed


def save_journal(context: Context, journal: BiosJournal) -> None:
    """Write the journal of a host; for the owner of its PoP only."""
    document = {"schema": SCHEMA, **asdict(journal)}
    context.store.put(_key(journal.pop, journal.host), json.dumps(document))


def _key(pop: str, host: str) -> str:
    return f"{PACK}.bios.{pop}.{host}"
