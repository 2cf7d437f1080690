# SPDX-License-Identifier: Apache-2.0
"""A tuning carried out on this host, and proven; what a journal records put back."""

import json
import os
from typing import Any, Callable, Dict, List, Sequence, Set, Tuple

from edgetune.agent.boot_hook import BootHook, arm_timer, set_deadline
from edgetune.agent.drift import touched_by
from edgetune.agent.files import Directories, remember_file, restore_file
from edgetune.agent.host import RESERVE_BYTES, Host
from edgetune.agent.journal import Entry, Journal, Journals, text_of
from edgetune.agent.kinds import handler_on
from edgetune.agent.observe import Row, asked, current, observe_all, stands
from edgetune.agent.protocol import AgentError, Failed, Unsupported, complaint
from edgetune.agent.readings import is_active, restart
from edgetune.agent.vocabulary.kinds import KINDS
from edgetune.agent.vocabulary.values import shown


def in_order(entries: Sequence[Entry]) -> List[Entry]:
    """Entries in the order of application."""
    return sorted(entries, key=lambda entry: KINDS[entry.setting.kind].order)


def record(host: Host, journal: Journal, rows: Sequence[Row]) -> None:
    """Let a journal hold what stands now, and what is about to be changed."""
    entries = []
    for row in rows:
        old, setting = row.setting, row.to_be_set
        handler = handler_on(host, old.kind)
        # What is to be kept only has to be tried as well.
        now = row.runtime_differs or (handler.tried_by_boot and row.stored_differs)
        snapshot = handler.snapshot(old.target) if now else None
        changes = now, row.stored_differs
        entries.append(Entry(setting, old.value, row.reading, snapshot, *changes))
    journal.hold(entries)
    journal.files = {name: remember_file(host, name) for name in stored_files(host, journal)}


def stored_files(host: Host, journal: Journal) -> Dict[str, str]:
    """The files that keep a tuning over a boot, with their content."""
    found: Dict[str, str] = {}
    stored = [entry.setting for entry in in_order(journal.entries) if entry.stored]
    for name in dict.fromkeys(setting.kind for setting in stored):
        of_kind = [setting for setting in stored if setting.kind == name]
        with host.read_cache():
            found.update(handler_on(host, name).files(journal, of_kind))
    return found


def services_of(entries: Sequence[Entry]) -> List[str]:
    """The services to be restarted for what changes now, each once."""
    changed = [entry.setting for entry in in_order(entries) if entry.runtime]
    return list(dict.fromkeys(setting.restart for setting in changed if setting.restart))


def carry_out(host: Host, journal: Journal) -> Tuple[List[str], List[Row]]:
    """Do what a journal says and prove it; the services restarted, and how it stands after that.

    Whatever it raises, the journal tells how to take it back.
    """
    journals = Journals(host)
    # The same for all but huge journals, so that a host is as before when one of several goes.
    host.reserve(max(RESERVE_BYTES, 2 * len(text_of(journal))))
    if journal.provisional:
        set_deadline(host, journal)
    journals.save(journal)
    BootHook(host).sync()
    if journal.provisional:
        arm_timer(host, journal)
    put_on(host, journal)
    services = services_of(journal.entries)
    restart(host, services)
    rows = prove(host, journal, services)
    if journal.provisional:
        # What the change itself took is no part of the wait for its confirmation.
        set_deadline(host, journal)
    journal.state = "provisional" if journal.provisional else "confirmed"
    Journals(host).save(journal)
    BootHook(host).sync()
    return services, rows


def put_on(host: Host, journal: Journal) -> None:
    """Set what a journal holds, and keep it over a boot; services have yet to be restarted."""
    touched: Set[str] = set()
    for entry in in_order(journal.entries):
        # What was as wanted may be so no more: new queues come without what the others have. The
        # snapshot of what was changed before it covers it.
        things = touched_by(host, entry.setting)
        if entry.runtime or (touched & things and not stands(host, entry.setting)):
            set_now(host, entry)
            touched |= things
    for name, text in stored_files(host, journal).items():
        Directories(host).make(os.path.dirname(name))
        host.write(name, text.encode())
    reload_changed(host, journal)


def commit(host: Host, journal: Journal) -> None:
    """Keep for every boot what one has tried; nothing of any other setting."""
    for entry in in_order(journal.entries):
        handler = handler_on(host, entry.setting.kind)
        if handler.tried_by_boot:
            handler.commit(entry.setting)


def runs_another(host: Host, journal: Journal) -> bool:
    """Whether a journal is of a kernel, or of its command line, and another one than before runs.

    An unknown one is taken for another one: a boot too many does no harm.
    """
    return any(current(host, e.setting).runtime != e.before.runtime for e in tried(journal))


def tried(journal: Journal) -> List[Entry]:
    """What of it changes at a boot."""
    return [e for e in journal.entries if e.runtime and e.setting.is_tried_by_a_boot]


def set_now(host: Host, entry: Entry) -> None:
    """Change one setting and read it back; Failed names it."""
    setting = entry.setting
    handler = handler_on(host, setting.kind)
    try:
        handler.apply(setting.target, setting.value)
        now = asked(handler, setting) if handler.live else setting.value
    except (OSError, AgentError, Unsupported) as error:
        text = error.strerror if isinstance(error, OSError) else str(error)
        raise Failed(f"{setting.id}: cannot be set to {shown(setting.value)}: {text}") from None
    if not handler.same(now, setting.value):
        text = f"reads {shown(now)} after {shown(setting.value)} was written"
        raise Failed(f"{setting.id}: {text}")


def reload_changed(host: Host, journal: Journal) -> None:
    """Let the operating system look at the files that a journal has changed."""
    for name in dict.fromkeys(entry.setting.kind for entry in journal.entries if entry.stored):
        handler_on(host, name).reload()


def prove(host: Host, journal: Journal, services: Sequence[str] = ()) -> List[Row]:
    """What was read; Failed unless all is as wanted. At a boot services will run later."""
    # What was good enough, now and after a boot, need not be the same at both.
    changed = [(entry, entry.runtime or entry.stored) for entry in journal.entries]
    settings = [entry.setting if done else entry.asked_for for entry, done in changed]
    host.answers.clear()
    if host.booting:
        settings = [setting for setting in settings if handler_on(host, setting.kind).live]
    rows = observe_all(host, settings, journal.tuning)
    wrong = [
        f"{row.setting.id}: {row.reason}: is {shown(row.runtime)}, stored {shown(row.persistent)}"
        for row in rows
        if not row.is_set
    ]
    restarted = [row for row in rows if row.setting.restart in services]
    wrong += [why for row in restarted for why in _disproof(host, row)]
    wrong += [f"{service} is not active" for service in services if not is_active(host, service)]
    if wrong:
        raise Failed("; ".join(wrong))
    return rows


def _disproof(host: Host, row: Row) -> List[str]:
    """What a setting whose service was restarted is found to be instead; nothing if all is well."""
    try:
        handler_on(host, row.setting.kind).prove(row.setting)
    except (Failed, Unsupported) as why:
        return [f"{row.setting.id}: {why}"]
    return []


def restore_all(host: Host, journal: Journal) -> List[str]:
    """Files first, then settings in the reverse order; the problems there were come back."""
    problems: List[str] = []
    for name, was in journal.files.items():
        attempt(problems, name, restore_file, host, name, was)
    attempt(problems, "", reload_changed, host, journal)
    restore_settings(host, journal.entries, problems)
    return problems


def restore_settings(host: Host, entries: Sequence[Entry], problems: List[str]) -> None:
    changed = [
        entry
        for entry in reversed(in_order(entries))
        if entry.runtime and handler_on(host, entry.setting.kind).present(entry.setting.target)
    ]
    refused: Dict[str, List[str]] = {}
    for entry in changed:
        restore, setting = handler_on(host, entry.setting.kind).restore, entry.setting
        refusals = refused.setdefault(setting.id, [])
        attempt(refusals, setting.id, restore, setting.target, entry.snapshot)
    # Only when all is back can it be read back: queues come and go with the channels.
    host.answers.clear()
    with host.read_cache():
        left = [entry for entry in changed if not _is_as_before(host, entry, refused)]
        for entry in left:
            problems += refused[entry.setting.id]
        for entry in left:
            attempt(problems, entry.setting.id, _check_restored, host, entry)


def _is_as_before(host: Host, entry: Entry, refused: Dict[str, List[str]]) -> bool:
    """Whether a setting that could not be set back is as it was, with all downstream of it."""
    if not refused[entry.setting.id]:
        return False
    handler = handler_on(host, entry.setting.kind)
    try:
        now = json.dumps(handler.snapshot(entry.setting.target), sort_keys=True)
    except Exception:
        return False
    return handler.live and now == json.dumps(entry.snapshot, sort_keys=True)


def _check_restored(host: Host, entry: Entry) -> None:
    handler, was = handler_on(host, entry.setting.kind), entry.before.runtime
    now = current(host, entry.setting).runtime if handler.live else was
    if now != was and not handler.is_back(entry.setting.target, now, was):
        raise Failed(f"reads {shown(now)} after {shown(was)} was restored")


def attempt(problems: List[str], what: str, action: Callable[..., object], *given: Any) -> None:
    """Do something, and go on with its complaint among the problems, named by ``what``."""
    try:
        action(*given)
    except Exception as error:
        problems.append(f"{what}: {complaint(error)}" if what else complaint(error))
