# SPDX-License-Identifier: Apache-2.0
"""A tuning taken back."""

from typing import List, Sequence

from edgetune.agent.boot_hook import BootHook
from edgetune.agent.change import services_of
from edgetune.agent.files import is_as_remembered
from edgetune.agent.host import Host
from edgetune.agent.journal import Entry, Journal, Journals, Reading
from edgetune.agent.kinds import HANDLERS
from edgetune.agent.observe import Difference, current_all, diff_of
from edgetune.agent.protocol import Failed
from edgetune.agent.restore import attempt, restore_all, restore_settings
from edgetune.agent.revert_timer import disarm_timer
from edgetune.agent.services import restart, started
from edgetune.agent.stack import Stack, refuse_below
from edgetune.agent.vocabulary.contents import alike


class Undone:
    """What taking a tuning back did: rows as in a diff, and the services restarted."""

    def __init__(self, changed: bool, diff: List[Difference], restarted: List[str]) -> None:
        self.changed = changed
        self.diff = diff
        self.restarted = restarted


def take_back(host: Host, journal: Journal) -> Undone:
    """Put everything back as the journal remembers it, to the byte, and forget the journal.

    Goes on after a problem; Failed names them all, and the journal stays for another try.
    What was applied later and touches the same things stands as before when it is done; Refused
    when that is not settled. At a boot services are restarted only once they run.
    """
    stack = Stack(host, journal)
    found = current_all(host, journal.entries)
    settings = not all(own.before.is_like(now) for own, now in zip(journal.entries, found))
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
        if HANDLERS.on(host, entry.setting.kind).live
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
    handler, was = HANDLERS.on(host, entry.setting.kind), entry.before
    running = now.runtime == was.runtime or not handler.live
    running = running or handler.is_back(entry.setting.target, now.runtime, was.runtime)
    return running and alike(now.persistent, was.persistent)
