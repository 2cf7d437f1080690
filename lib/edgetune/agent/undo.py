# SPDX-License-Identifier: Apache-2.0
"""A tuning taken back, with those that stand on it suspended and applied again."""

from typing import Dict, List, NamedTuple, Optional, Sequence, Set

from edgetune.agent.boot_hook import BootHook, disarm_timer
from edgetune.agent.change import (
    attempt,
    put_on,
    record,
    restore_all,
    restore_settings,
    services_of,
    tried,
)
from edgetune.agent.drift import drift_of, touched_by, touched_by_all
from edgetune.agent.files import is_as_remembered
from edgetune.agent.host import Host
from edgetune.agent.journal import Entry, Journal, Journals, Reading
from edgetune.agent.kinds import handler_on
from edgetune.agent.observe import Difference, Row, current_all, diff_of, observe
from edgetune.agent.protocol import Failed, Refused
from edgetune.agent.readings import restart, started
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.values import Value, alike


class Stack:
    """The tunings above one that is taken back.

    They are suspended, the newest first, and applied again, the oldest first, on what is then.
    Whoever is killed in between leaves the one below ``restoring`` and some of the others
    ``suspended``, and all of it can be done again from the start: the journal of the one below goes
    last, and those of the others hold at any time what stands of them. Each step gives back the
    problems there were, with which no other step may be taken.
    """

    def __init__(self, host: Host, below: Journal) -> None:
        """Refused when one of them is not settled."""
        self._host = host
        self._below = below
        self._journals = above(host, below)
        for other in self._journals:
            if other.state not in ("confirmed", "suspended"):
                what = f"{other.tuning} was applied later and is {other.state}"
                raise Refused(f"{what}: restore it first")
            # It could not be applied again without a boot.
            if tried(other):
                what = f"{other.tuning} was applied later and changed what is booted"
                raise Refused(f"{what}: restore it first")

    def suspend(self) -> List[str]:
        """Put back what they changed."""
        problems: List[str] = []
        for journal in reversed(self._journals):
            if not problems:
                attempt(problems, journal.tuning, self._suspend, journal)
        return problems

    def reapply(self) -> List[str]:
        """Set them again; the services that this asks for are due with the one below."""
        problems: List[str] = []
        below = [entry for entry in self._below.entries if entry.runtime]
        running = {entry.setting.id: entry.before.runtime for entry in below}
        for journal in self._journals:
            if not problems:
                attempt(problems, journal.tuning, self._reapply, journal, running)
        return problems

    def settle(self) -> List[str]:
        """See that they stand as before."""
        problems: List[str] = []
        for index, journal in enumerate(self._journals):
            attempt(problems, journal.tuning, self._settle, journal, self._journals[index + 1 :])
        return problems

    def _suspend(self, journal: Journal) -> None:
        journal.state = "suspended"
        Journals(self._host).save(journal)
        problems = restore_all(self._host, journal)
        if problems:
            raise Failed("; ".join(problems))
        for entry in journal.entries:
            # Nothing is to be taken back.
            entry.runtime = entry.stored = False
            entry.snapshot = None
        journal.files = {}
        Journals(self._host).save(journal)

    def _reapply(self, journal: Journal, running: Dict[str, Optional[Value]]) -> None:
        old = journal.entries
        rows = [self._row(journal, entry, running) for entry in old]
        record(self._host, journal, rows)
        running.update((entry.setting.id, entry.setting.value) for entry in journal.entries)
        # A service that runs with another value than it will be given has to be restarted. After a
        # boot it may have been started while this was suspended.
        due = [
            entry.setting.restart
            for was, entry in zip(old, journal.entries)
            if entry.setting.restart
            if entry.setting.value != was.setting.value or (self._host.booting and entry.runtime)
        ]
        known = self._below.services_due
        self._below.services_due = list(dict.fromkeys([*known, *due]))
        if self._below.services_due != known:
            Journals(self._host).save(self._below)
        Journals(self._host).save(journal)
        put_on(self._host, journal)

    def _row(self, journal: Journal, entry: Entry, running: Dict[str, Optional[Value]]) -> Row:
        changed, setting = entry.setting, entry.asked_for
        before = running.get(changed.id, entry.before.runtime)
        live = handler_on(self._host, changed.kind).live
        row = observe(self._host, setting, journal.tuning, None if live else before)
        if row.problem:
            raise Failed(f"{changed.id}: {row.problem}")
        return row

    def _settle(self, journal: Journal, later: List[Journal]) -> None:
        rows = drift_of(self._host, journal, later)
        wrong = [f"{row.setting.id}: {row.reason}" for row in rows if self._can_tell(row.setting)]
        if wrong:
            raise Failed("; ".join(wrong))
        journal.state = "confirmed"
        Journals(self._host).save(journal)

    def _can_tell(self, setting: Setting) -> bool:
        """At a boot services may run later."""
        if handler_on(self._host, setting.kind).live or not self._host.booting:
            return True
        return bool(setting.restart and started(self._host, [setting.restart]))


def above(host: Host, journal: Journal) -> List[Journal]:
    """What was applied later and touches the same things, directly or not, in that order."""
    changed = [entry for entry in journal.entries if entry.runtime or entry.stored]
    touched, found = touched_by_all(host, changed), []
    for other in Journals(host).all():
        reach = touched_by_all(host, other.entries)
        stands_on_it = other.state == "suspended" or bool(touched & reach)
        if other.sequence > journal.sequence and stands_on_it:
            touched |= reach
            found.append(other)
    return found


def way_back(host: Host, journal: Journal) -> Dict[str, Optional[Reading]]:
    """What each setting will be once a tuning is taken back, by id.

    None where a later one holds it.
    """
    held: Set[str] = set()
    for other in Journals(host).all():
        if other.sequence > journal.sequence:
            held |= touched_by_all(host, other.entries)
    return {
        entry.setting.id: None if touched_by(host, entry.setting) & held else entry.before
        for entry in journal.entries
    }


def refuse_below(host: Host, journal: Journal) -> None:
    """Refused when another tuning stands on this one."""
    for other in above(host, journal):
        raise Refused(f"{other.tuning} was applied later, on {journal.tuning}: restore it first")


class Undone(NamedTuple):
    """What taking a tuning back did: what differs, and the services restarted."""

    changed: bool
    diff: List[Difference]
    restarted: List[str]


def take_back(host: Host, journal: Journal) -> Undone:
    """Put everything back as the journal remembers it, to the byte, and forget the journal.

    Goes on after a problem; Failed names them all, and the journal stays for another try.
    What was applied later and touches the same things stands as before when it is done; Refused
    when that is not settled. At a boot services are restarted only once they run.
    """
    stack = Stack(host, journal)
    found = current_all(host, journal.entries)
    settings = not all(entry.before.is_like(now) for entry, now in zip(journal.entries, found))
    changed = settings or not all(
        is_as_remembered(host, name, was) for name, was in journal.files.items()
    )
    unsaved = _mark_restoring(host, journal, services_of(journal.entries if changed else []))
    problems = stack.suspend() or restore_all(host, journal) or stack.reapply()
    services = started(host, journal.services_due)
    attempt(problems, "", restart, host, services)
    problems = problems or stack.settle()
    left = current_all(host, journal.entries)
    if problems:
        raise Failed("; ".join(unsaved + problems))
    disarm_timer(host, journal)
    attempt(problems, "all is back, but the journal stays", Journals(host).forget, journal.tuning)
    attempt(problems, "all is back, but the boot hook stays", BootHook(host).sync)
    if problems:
        raise Failed("; ".join(problems))
    return Undone(changed, diff_of(journal.entries, found, left), services)


def _mark_restoring(host: Host, journal: Journal, due: Sequence[str]) -> List[str]:
    """Write down that a tuning is taken back; the problem, where it is no reason to leave it.

    It is none for a tuning that was never confirmed: its journal asks for its end in any state.
    """
    needed = journal.state in ("confirmed", "suspended")
    journal.state = "restoring"
    journal.services_due = list(dict.fromkeys([*journal.services_due, *due]))
    problems: List[str] = []
    # If we die on the way, and nobody asks again, the next boot goes on.
    attempt([], "", BootHook(host).install)
    attempt(problems, "", Journals(host).save, journal)
    if problems and needed:
        raise Failed(problems[0])
    return problems


def take_back_live(host: Host, journal: Journal, names: Sequence[str]) -> Undone:
    """Set the runtime values of some settings back, in place: no file, no service is touched.

    The journal stays, ``restoring``: `take_back` does the rest. Failed and Refused as there.
    """
    refuse_below(host, journal)
    chosen = [
        entry
        for entry in journal.entries
        if entry.setting.id in names and entry.runtime
        if handler_on(host, entry.setting.kind).live
    ]
    found = current_all(host, chosen)
    due = [entry for entry, now in zip(chosen, found) if now.runtime != entry.before.runtime]
    unsaved = _mark_restoring(host, journal, services_of(due))
    problems: List[str] = []
    restore_settings(host, chosen, problems)
    if problems:
        raise Failed("; ".join(unsaved + problems))
    diff = diff_of(chosen, found, current_all(host, chosen))
    return Undone(bool(diff), diff, [])


def what_differs(host: Host, journal: Journal) -> List[str]:
    """The files and settings that are seen to be otherwise than before a tuning."""
    files = [name for name, was in journal.files.items() if not is_as_remembered(host, name, was)]
    found = zip(journal.entries, current_all(host, journal.entries))
    return files + [entry.setting.id for entry, now in found if not _is_back(host, entry, now)]


def _is_back(host: Host, entry: Entry, now: Reading) -> bool:
    handler, was = handler_on(host, entry.setting.kind), entry.before
    running = now.runtime == was.runtime or not handler.live
    running = running or handler.is_back(entry.setting.target, now.runtime, was.runtime)
    return running and alike(now.persistent, was.persistent)
