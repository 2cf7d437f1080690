# SPDX-License-Identifier: Apache-2.0
"""What a journal records put back: files, and settings in the reverse order."""

from typing import Any, Callable, List, Sequence

from edgetune.hosts.agent.change import in_order, reload_changed
from edgetune.hosts.agent.files import put_file_back
from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.journal import Entry, Journal
from edgetune.hosts.agent.kinds import KINDS
from edgetune.hosts.agent.observe import current
from edgetune.hosts.agent.protocol import Failed, complaint
from edgetune.hosts.agent.values import shown


def put_back(host: Host, journal: Journal) -> List[str]:
    """Files first, then settings in the reverse order; the problems there were come back."""
    problems: List[str] = []
    for name, was in journal.files.items():
        attempt(problems, name, put_file_back, host, name, was)
    attempt(problems, "", reload_changed, host, journal)
    put_settings_back(host, journal.entries, problems)
    return problems


def put_settings_back(host: Host, entries: Sequence[Entry], problems: List[str]) -> None:
    changed = [
        entry
        for entry in reversed(in_order(entries))
        if entry.runtime and KINDS[entry.setting.kind](host).present(entry.setting.target)
    ]
    for entry in changed:
        attempt(problems, entry.setting.id, _set_back, host, entry)
    # Only when all is back can it be read back: queues come and go with the channels.
    with host.glance():
        for entry in changed:
            attempt(problems, entry.setting.id, _check_back, host, entry)


def _set_back(host: Host, entry: Entry) -> None:
    KINDS[entry.setting.kind](host).restore(entry.setting.target, entry.snapshot)


def _check_back(host: Host, entry: Entry) -> None:
    kind, was = KINDS[entry.setting.kind](host), entry.before["runtime"]
    now = current(host, entry.setting)["runtime"] if kind.live else was
    if now != was and not kind.is_back(entry.setting.target, now, was):
        raise Failed(f"reads {shown(now)} after {shown(was)} was restored")


def attempt(problems: List[str], what: str, action: Callable[..., object], *given: Any) -> None:
    """Do something, and go on with its complaint among the problems, named by ``what``."""
    try:
        action(*given)
    except Exception as error:
        problems.append(f"{what}: {complaint(error)}" if what else complaint(error))
