# SPDX-License-Identifier: Apache-2.0
"""A tuning taken back."""

from typing import Any, Callable, List, Sequence

from edgetune.hosts.agent.change import in_order, reload_changed, services_of
from edgetune.hosts.agent.files import is_as_remembered, put_file_back
from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.journal import Entry, Journal, Journals
from edgetune.hosts.agent.kinds import KINDS
from edgetune.hosts.agent.observe import current, diff_of
from edgetune.hosts.agent.protocol import Failed, Json, Refused, complaint
from edgetune.hosts.agent.services import restart
from edgetune.hosts.agent.standby import BootHook, disarm_timer


class Undone:
    """What taking a tuning back did: rows as in a diff, and the services restarted."""

    def __init__(self, changed: bool, diff: List[Json], restarted: List[str]) -> None:
        self.changed = changed
        self.diff = diff
        self.restarted = restarted


def take_back(host: Host, journal: Journal, restarting: bool = True) -> Undone:
    """Put everything back as the journal remembers it, to the byte, and forget the journal.

    Goes on after a problem; Failed names them all, and the journal stays for another try.
    Refused when a tuning that was applied later changes the same things.
    """
    _refuse_out_of_order(host, journal)
    found = [current(host, entry.setting) for entry in journal.entries]
    changed = _differs(host, journal, found)
    unsaved = _mark_restoring(host, journal, services_of(journal.entries if changed else []))
    services = journal.services_due if restarting else []
    problems = _put_back(host, journal)
    attempt(problems, "", restart, host, services)
    left = [current(host, entry.setting) for entry in journal.entries]
    if problems:
        raise Failed("; ".join(unsaved + problems))
    disarm_timer(host, journal)
    Journals(host).forget(journal.tuning)
    BootHook(host).sync()
    return Undone(changed, diff_of(journal.entries, found, left), list(services))


def _mark_restoring(host: Host, journal: Journal, due: Sequence[str]) -> List[str]:
    """Write down that a tuning is taken back; the problem, where it is no reason to leave it.

    It is none for a tuning that is not confirmed: its journal asks for its end in any state.
    """
    needed = journal.state == "confirmed"
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
    _refuse_out_of_order(host, journal)
    chosen = [
        entry
        for entry in journal.entries
        if entry.setting.id in names and entry.runtime and KINDS[entry.setting.kind](host).live
    ]
    found = [current(host, entry.setting) for entry in chosen]
    due = [entry for entry, now in zip(chosen, found) if now["runtime"] != entry.before["runtime"]]
    unsaved = _mark_restoring(host, journal, services_of(due))
    problems: List[str] = []
    _put_settings_back(host, chosen, problems)
    if problems:
        raise Failed("; ".join(unsaved + problems))
    diff = diff_of(chosen, found, [current(host, entry.setting) for entry in chosen])
    return Undone(bool(diff), diff, [])


def _refuse_out_of_order(host: Host, journal: Journal) -> None:
    for other in Journals(host).all():
        shared = journal.scopes() & other.scopes()
        if other.sequence > journal.sequence and shared:
            what = ", ".join(sorted(shared))
            raise Refused(f"{other.tuning} was applied later and changes {what}: restore it first")


def _differs(host: Host, journal: Journal, found: Sequence[Json]) -> bool:
    settings = any(entry.before != now for entry, now in zip(journal.entries, found))
    return settings or not all(
        is_as_remembered(host, name, was) for name, was in journal.files.items()
    )


def _put_back(host: Host, journal: Journal) -> List[str]:
    """Files first, then settings in the reverse order; the problems there were come back."""
    problems: List[str] = []
    for name, was in journal.files.items():
        attempt(problems, name, put_file_back, host, name, was)
    attempt(problems, "", reload_changed, host, journal)
    _put_settings_back(host, journal.entries, problems)
    return problems


def _put_settings_back(host: Host, entries: Sequence[Entry], problems: List[str]) -> None:
    changed = [
        entry
        for entry in reversed(in_order(entries))
        if entry.runtime and KINDS[entry.setting.kind](host).present(entry.setting.target)
    ]
    # Only when all is back can it be read back: queues come and go with the channels.
    for step in (_set_back, _check_back):
        for entry in changed:
            attempt(problems, entry.setting.id, step, host, entry)


def _set_back(host: Host, entry: Entry) -> None:
    KINDS[entry.setting.kind](host).restore(entry.setting.target, entry.snapshot)


def _check_back(host: Host, entry: Entry) -> None:
    kind, was = KINDS[entry.setting.kind](host), entry.before["runtime"]
    now = current(host, entry.setting)["runtime"] if kind.live else was
    if now != was:
        raise Failed(f"reads {now} after {was} was restored")


def attempt(problems: List[str], what: str, action: Callable[..., object], *given: Any) -> None:
    try:
        action(*given)
    except Exception as error:
        problems.append(f"{what}: {complaint(error)}" if what else complaint(error))
