# SPDX-License-Identifier: Apache-2.0
"""What a journal records put back: files, and settings in the reverse order."""

import json
from typing import Any, Callable, Dict, List, Sequence

from edgetune.agent.change import in_order, reload_changed
from edgetune.agent.files import restore_file
from edgetune.agent.host import Host
from edgetune.agent.journal import Entry, Journal
from edgetune.agent.kinds import HANDLERS
from edgetune.agent.observe import current
from edgetune.agent.protocol import Failed, complaint
from edgetune.agent.vocabulary.values import shown


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
        if entry.runtime and HANDLERS.on(host, entry.setting.kind).present(entry.setting.target)
    ]
    refused: Dict[str, List[str]] = {}
    for entry in changed:
        attempt(refused.setdefault(entry.setting.id, []), entry.setting.id, _restore, host, entry)
    # Only when all is back can it be read back: queues come and go with the channels.
    host.answers.clear()
    with host.read_cache():
        left = [entry for entry in changed if not _is_as_before(host, entry, refused)]
        for entry in left:
            problems += refused[entry.setting.id]
        for entry in left:
            attempt(problems, entry.setting.id, _check_restored, host, entry)


def _restore(host: Host, entry: Entry) -> None:
    HANDLERS.on(host, entry.setting.kind).restore(entry.setting.target, entry.snapshot)


def _is_as_before(host: Host, entry: Entry, refused: Dict[str, List[str]]) -> bool:
    """Whether a setting that could not be set back is as it was, with all downstream of it."""
    if not refused[entry.setting.id]:
        return False
    handler = HANDLERS.on(host, entry.setting.kind)
    try:
        now = json.dumps(handler.snapshot(entry.setting.target), sort_keys=True)
    except Exception:
        return False
    return handler.live and now == json.dumps(entry.snapshot, sort_keys=True)


def _check_restored(host: Host, entry: Entry) -> None:
    handler, was = HANDLERS.on(host, entry.setting.kind), entry.before.runtime
    now = current(host, entry.setting).runtime if handler.live else was
    if now != was and not handler.is_back(entry.setting.target, now, was):
        raise Failed(f"reads {shown(now)} after {shown(was)} was restored")


def attempt(problems: List[str], what: str, action: Callable[..., object], *given: Any) -> None:
    """Do something, and go on with its complaint among the problems, named by ``what``."""
    try:
        action(*given)
    except Exception as error:
        problems.append(f"{what}: {complaint(error)}" if what else complaint(error))
