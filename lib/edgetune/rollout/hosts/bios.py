# SPDX-License-Identifier: Apache-2.0
"""What was changed in the BIOS of each host and what stood there before, what it should hold, and
what its BMC says that it holds.

A BMC keeps no journal for us, as the agent does on a host, so it is a record of ours:
``edgetune.bios.POP.HOST``. It is written before anything is asked of the BMC, and holds all
attributes as they were, for the day on which somebody needs more than what we changed. Attributes
of standing tunings get lost: by a reset to defaults, another board, some updates.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field

from edgetune import PACK
from edgetune.base import clock
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.batch import Batch
from edgetune.base.documents.host import BiosPlan, BiosState
from edgetune.base.documents.reading import check_is, decoded, read_document
from edgetune.base.errors import RefusedError
from edgetune.base.sanitize import command
from edgetune.net.bmc.payload import MAX_ERROR, BmcError, said, same
from edgetune.net.result import HostResult
from edgetune.rollout.context import Context
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.rollout import Record
from edgetune.rollout.store.records import value_of
from edgetune.site.inventory import Host

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


# The states of a BIOS that does not hold what it should.
_NOT_THERE = ("failed", "absent")
# Nothing is wrong yet, and nothing is lost by asking again.
LATER = ("busy", "unknown", "unreachable")


@dataclass
class Target:
    """What the BIOS of a machine shall hold after its next boot, and what is ours there by now."""

    attributes: Values = field(default_factory=dict)
    ours: Values = field(default_factory=dict)
    job: str = ""
    system: str = ""


def settled(opened: Rollout, work: Batch, names: Sequence[str]) -> dict[str, HostResult]:
    """What the BIOS of hosts holds, against what it should hold by now; all answer or fail.

    ``reason`` of a failure is ``busy`` while it may yet come about, and ``absent`` where only
    time tells.
    """
    targets, unread = _to_prove(opened, work, names)
    asked = [name for name, target in targets.items() if target.attributes]
    answers = opened.ask_bmcs(asked, "check", lambda host: vars(targets[host.name]))
    unasked = {name: HostResult(name) for name in targets if name not in asked}
    if work.batch_type == "restore":
        answers = {name: _old_again(targets[name], answer) for name, answer in answers.items()}
    return {**unread, **unasked, **{name: _proof(answer) for name, answer in answers.items()}}


def disturbed(opened: Rollout, work: Batch, names: Sequence[str]) -> dict[str, str]:
    """In whose BIOS a change of somebody else waits by now, that a reboot would bring in.

    A BMC that does not tell was asked when its BIOS was set.
    """
    if not opened.sets_bios:
        return {}
    targets, unread = _to_prove(opened, work, names)
    answers = opened.ask_bmcs(list(targets), "check", lambda host: vars(targets[host.name]))
    told = {name: answer for name, answer in answers.items() if not answer.failed}
    found = {name: ", ".join(answer.read(BiosState).foreign) for name, answer in told.items()}
    text = "BIOS: changes of somebody else wait for the next boot"
    foreign = {name: said(f"{text}: {what}", MAX_ERROR) for name, what in found.items() if what}
    return {**{name: f"BIOS: {answer.error}" for name, answer in unread.items()}, **foreign}


def machine_of(opened: Record, host: str) -> str:
    """The UUID of the machine whose BIOS is set under this name, or "" where none is.

    BmcError where the record of that cannot be read.
    """
    try:
        journal = load_journal(opened.context, opened.head.pop, host)
    except RefusedError as error:
        raise BmcError("refused", str(error)) from None
    return journal.system if journal.entries else ""


def forget(opened: Rollout, names: Sequence[str]) -> None:
    """Drop what the rollout wrote down of hosts that are as they were, or are others by now."""
    for name in names:
        journal = load_journal(opened.context, opened.head.pop, name)
        entry = journal.of(opened.head.id)
        if entry:
            journal.entries.remove(entry)
            save_owned(opened, journal)


def still_set(opened: Record, host: str) -> bool:
    """Whether any of what the rollout changed stands in the BIOS of this very machine, or waits.

    RefusedError when its BMC does not tell.
    """
    journal = load_journal(opened.context, opened.head.pop, host)
    entry = journal.of(opened.head.id)
    if entry is None:
        return False
    looked = _told(opened, host, "plan", {"settings": [], "ours": entry.to}).read(BiosPlan)
    if looked.system != journal.system:
        return False
    changed = [name for name, change in entry.changes.items() if change.was != change.to]
    if set(changed) - set(journal.goes_back_to(entry)):
        # A later tuning stands upon it, and would lead back to it.
        return True
    found = _told(opened, host, "check", vars(Target(entry.to))).read(BiosState)
    return any(
        same(values.get(name), entry.to[name])
        for name in changed
        for values in (found.current, found.pending)
    )


def _told(opened: Record, host: str, verb: str, request: Mapping[str, object]) -> HostResult:
    answer = opened.context.bmcs.ask(opened.hosts([host]), verb, lambda each: request)[host]
    if answer.failed:
        raise RefusedError(f"{host}: its BMC does not tell: {answer.error}")
    return answer


def target_of(opened: Record, journal: BiosJournal, back: bool) -> Target:
    """What a rollout wants of a BIOS, or with ``back`` what the journal leads back to."""
    entry = journal.of(opened.head.id)
    if entry is None:
        return Target()
    attributes = journal.goes_back_to(entry) if back else entry.to
    return Target(attributes, entry.to, entry.job, journal.system)


def _to_prove(
    opened: Record, work: Batch, names: Sequence[str]
) -> tuple[dict[str, Target], dict[str, HostResult]]:
    """The target of each host, and a failure of each whose journal cannot be read."""
    journals, unread = load_journals(opened.context, opened.head.pop, names)
    back = work.batch_type == "restore"
    return {name: target_of(opened, own, back) for name, own in journals.items()}, unread


def _old_again(target: Target, answer: HostResult) -> HostResult:
    """What a BIOS has against the change that it did not take is nothing against its way back."""
    if answer.failed:
        return answer
    told = answer.read(BiosState)
    if told.state not in _NOT_THERE or told.pending:
        return answer
    is_back = all(told.current.get(name) == was for name, was in target.attributes.items())
    return HostResult(answer.host, {**answer.data, "state": "done"}) if is_back else answer


def _proof(answer: HostResult) -> HostResult:
    if answer.failed:
        later = answer.reason in LATER
        return HostResult(answer.host, error=answer.error, reason="busy" if later else "failed")
    told = answer.read(BiosState)
    if told.state == "done":
        return answer
    # Some BMCs read what a boot made of it only some time after that boot.
    reason = told.state if told.state in _NOT_THERE else "busy"
    return HostResult(answer.host, error=f"BIOS: {told.reason}", reason=reason)


def save_owned(opened: Rollout, journal: BiosJournal) -> None:
    """Keep a journal; FencedError where the rollout has lost its claim."""
    opened.renew()
    save_journal(opened.context, journal)


def bios_drift(context: Context, pop: str) -> dict[str, list[str]]:
    """A text for each host of a PoP that does not hold, or does not tell, what it should."""
    hosts = [host for host in context.known_inventory.pop(pop).hosts if host.bmc]
    journals, unread = load_journals(context, pop, [host.name for host in hosts])
    tuned = [host for host in hosts if host.name in journals and journals[host.name].entries]

    def request(host: Host) -> dict[str, object]:
        journal = journals[host.name]
        return {"attributes": journal.expected, "ours": {}, "job": "", "system": journal.system}

    answers = {**unread, **context.bmcs.ask(tuned, "check", request)}
    whys = {name: _why_adrift(answer) for name, answer in answers.items()}
    return {name: [f"BIOS: {why}"] for name, why in whys.items() if why}


def _why_adrift(answer: HostResult) -> str:
    """Why a BIOS does not hold what it should, or what keeps that from being known."""
    if answer.failed:
        return str(answer.error)
    told = answer.read(BiosState)
    return "" if told.state == "done" else told.reason
