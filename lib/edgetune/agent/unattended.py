# SPDX-License-Identifier: Apache-2.0
"""What runs when nobody asks: at a boot, at a deadline, and for a person at the console."""

import re
import sys
import time
from typing import TYPE_CHECKING, Any, Dict, List, Sequence

from edgetune.agent.boot_hook import (
    FOLLOWING,
    BootHook,
    arm_timer,
    by_hook,
    follow_up,
    let_go,
    set_deadline,
    time_left,
)
from edgetune.agent.change import attempt, in_order, runs_another, set_now, tried
from edgetune.agent.host import Host
from edgetune.agent.journal import UNSETTLED, Deadline, Entry, Journal, Journals
from edgetune.agent.kinds import handler_on
from edgetune.agent.observe import in_force, observe
from edgetune.agent.protocol import TUNING, Failed, Refused, Unsupported, complaint
from edgetune.agent.vocabulary.places import CONGESTION
from edgetune.agent.vocabulary.values import shown

if TYPE_CHECKING:
    from edgetune.agent.undo import Undone

BOOT_WAIT = 10.0
LATE_WAIT = 300.0
"""How long interfaces may take to come up after a boot, in seconds."""


LOOK_AGAIN, LOOK_SELDOM = 0.2, 2.0
"""The fewest and the most seconds between two looks at them."""

REVERT_AGAIN = 5.0
REVERT_SELDOM = 300.0
"""The most seconds between two tries: each may restart services again."""


def boot(host: Host) -> List[str]:
    """Set again what nothing else keeps, and take back what was never confirmed.

    A provisional change survives ``grace_boots`` boots, and its revert timer starts anew.
    Services are not restarted: at this point of the boot they have not been started yet.
    """
    problems: List[str] = []
    journals = Journals(host)
    host.booting = True
    with host.lock(60.0):
        for journal in reversed(journals.all()):
            attempt(problems, journal.tuning, _end_if_due, host, journal)
        for journal in journals.all():
            if journal.state not in UNSETTLED:
                attempt(problems, journal.tuning, _carry_on, host, journal, problems)
        if host.exists(CONGESTION):
            # Few boots need to import it.
            from edgetune.agent.congestion import Congestion

            # Take back what stood in the boot before.
            attempt(problems, CONGESTION, Congestion(host).settle)
        attempt(problems, "", BootHook(host).sync)
        if _unready(host, journals.all()):
            attempt(problems, "", follow_up, host)
        return problems + list(journals.damaged().values())


def boot_and_rest(host: Host) -> List[str]:
    """The same; under systemd the rest, too, for which nothing waits."""
    problems = boot(host)
    attempt(problems, "", let_go)
    if host.init == "systemd" and host.exists(FOLLOWING):
        attempt(problems, "", lambda: problems.extend(late(host)))
    return problems


def late(host: Host) -> List[str]:
    """Set again what the boot hook came too early for, or as much of it as there is in the end."""
    try:
        problems: List[str] = []
        journals = Journals(host)
        # Until all is there that the rest stands on, or for `LATE_WAIT`.
        end, pause = time.monotonic() + LATE_WAIT, LOOK_AGAIN
        # Nobody holds the lock: a person may take a tuning back meanwhile.
        while _unready(host, journals.all()) and time.monotonic() < end:
            # The rest of the boot has more use for the CPU.
            time.sleep(pause)
            pause = min(1.5 * pause, LOOK_SELDOM)
        host.booting = host.late = True
        with host.lock(60.0):
            # What stands on them may have been missing when the host began to boot.
            for journal in reversed(journals.all()):
                if journal.state == "restoring":
                    attempt(problems, journal.tuning, take_back, host, journal)
            for journal in journals.all():
                if journal.state not in UNSETTLED:
                    attempt(problems, journal.tuning, _set_again, host, journal, problems)
            missing = _unready(host, journals.all())
            problems += [f"{entry.setting.id}: is not there yet, or down" for entry in missing]
        return problems
    finally:
        # Who looks at the host waits as long as it is there.
        host.remove(FOLLOWING)


def _unready(host: Host, journals: Sequence[Journal]) -> List[Entry]:
    """Of what the boot hook keeps, also what is suspended: that will be stored again."""
    return [
        entry
        for journal in journals
        for entry in journal.entries
        if (entry.stored or journal.state == "suspended") and by_hook(host, entry)
        if not _ready(host, entry)
    ]


def _ready(host: Host, entry: Entry) -> bool:
    return handler_on(host, entry.setting.kind).ready(entry.setting.target)


def take_back(host: Host, journal: Journal) -> "Undone":
    """As `undo.take_back`, which most boots need not import."""
    from edgetune.agent import undo

    return undo.take_back(host, journal)


def _end_if_due(host: Host, journal: Journal) -> None:
    if not _survives(host, journal):
        from edgetune.agent.undo import above

        above_it = [entry for other in above(host, journal) for entry in other.entries]
        _await(host, above_it)
        take_back(host, journal)
        _leave_kernel(host, journal)


def _leave_kernel(host: Host, journal: Journal) -> None:
    """Boot the old kernel where the one that was taken back runs: nobody confirmed it."""
    if runs_another(host, journal):
        # Not detached: what the service of the boot hook leaves behind is killed with it.
        first, *rest = host.reboot_command
        host.run(first, *(["--no-block"] if first == "systemctl" else []), *rest)


def _fell_back(host: Host, journal: Journal) -> bool:
    """Whether this boot is of another kernel, or command line, than was to be tried."""
    try:
        return not all(in_force(host, entry.setting) for entry in tried(journal))
    except Unsupported:
        return True


def _survives(host: Host, journal: Journal) -> bool:
    """Whether a tuning outlives this boot; one of its grace boots is used up by that."""
    if journal.state != "provisional":
        # What is suspended is applied again when the tuning below it is taken back.
        return journal.state in ("confirmed", "suspended")
    if journal.deadline and journal.deadline.boot_id == host.boot_id:
        return True
    if journal.grace_boots == 0 or _fell_back(host, journal):
        return False
    journal.grace_boots -= 1
    journal.deadline = Deadline(host.boot_id, time.monotonic())
    Journals(host).save(journal)
    return True


def _carry_on(host: Host, journal: Journal, problems: List[str]) -> None:
    """Set again what no file keeps; without a timer nobody would take back what is provisional."""
    if journal.provisional:
        try:
            set_deadline(host, journal)
            Journals(host).save(journal)
            arm_timer(host, journal)
        except Exception as error:
            take_back(host, journal)
            _leave_kernel(host, journal)
            raise Failed(f"taken back, as its timer cannot be set: {complaint(error)}") from None
    _set_again(host, journal, problems)


def _set_again(host: Host, journal: Journal, problems: List[str]) -> None:
    kept = [entry for entry in in_order(journal.entries) if entry.stored and by_hook(host, entry)]
    with host.read_cache():
        entries = [entry for entry in kept if _ready(host, entry)]
    _await(host, entries)
    for entry in entries:
        row = observe(host, entry.setting, journal.tuning, stored=False)
        if row.problem:
            problems.append(f"{entry.setting.id}: {row.problem}")
        elif row.runtime_differs:
            attempt(problems, "", set_now, host, entry)


def _await(host: Host, entries: Sequence[Entry]) -> None:
    """Drivers may bring their interfaces some time after the boot hook started."""
    end = time.monotonic() + BOOT_WAIT
    while not _all_present(host, entries) and time.monotonic() < end:
        time.sleep(0.1)
        host.answers.clear()


def _all_present(host: Host, entries: Sequence[Entry]) -> bool:
    with host.read_cache():
        return all(
            handler_on(host, entry.setting.kind).present(entry.setting.target) for entry in entries
        )


def revert(host: Host, tuning: str) -> None:
    """Wait for the deadline of a tuning, then take it back, unless somebody settled it before.

    Tries again and again, after ever longer pauses: nobody else takes back a change that cut its
    host off.
    """
    waiting, pause = True, REVERT_AGAIN
    while waiting:
        try:
            waiting = _revert_if_due(host, tuning)
        except Exception as error:
            sys.stderr.write(f"edgetune: {tuning}: {complaint(error)}\n")
            time.sleep(pause)
            pause = min(2 * pause, REVERT_SELDOM)


def _revert_if_due(host: Host, tuning: str) -> bool:
    """One look at the clock; whether there is more to wait for."""
    left = time_left(host, Journals(host).load(tuning))
    if left is None:
        return False
    if left > 0:
        time.sleep(min(left, 1.0))
        return True
    with host.lock(600.0):
        journal = Journals(host).load(tuning)
        if journal is not None and time_left(host, journal) == 0:
            take_back(host, journal)
            _leave_kernel(host, journal)
    return True


def restore_by_hand(host: Host, tuning: str) -> None:
    """Take a tuning back for a person at the console, and print what that changed.

    No epoch is asked for: whoever can run this can do anything to the host.
    """
    with host.lock():
        journal = Journals(host).load(tuning) if re.fullmatch(TUNING, tuning) else None
        if journal is None:
            names = ", ".join(other.tuning for other in Journals(host).all()) or "none"
            raise Refused(f"there is no such tuning on this host; there are: {names}")
        undone = take_back(host, journal)
    for row in undone.diff:
        print(f"{row['id']}: {_facts(row['before'])} -> {_facts(row['after'])}")
    print(f"{tuning} is taken back; restarted: {', '.join(undone.restarted) or 'nothing'}")


def _facts(found: Dict[str, Any]) -> str:
    return f"{shown(found['runtime'])} (stored: {shown(found['persistent'])})"
