# SPDX-License-Identifier: Apache-2.0
"""``hand_over``: leave a tuning's effect to the host's own people, without anything of ours.

Its effect stays, in files without our marks, and its journal goes.
The new files are written before the old ones go, and then the journal goes. It holds the new ones
from the beginning. So an agent that is killed before that leaves a tuning that stands, that a boot
keeps, that can be taken back wholly, and that can be handed over from the start. What a boot loader
keeps goes after the journal: to take it back is to have its menu made anew, which needs the old
file.
"""

import errno
import os
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from edgetune.agent.boot_hook import BootHook, by_hook
from edgetune.agent.change import reload_changed
from edgetune.agent.disk import NEW_FILE, Metadata
from edgetune.agent.drift import drift_of
from edgetune.agent.files import remember_file, restore_file
from edgetune.agent.host import Host, decode
from edgetune.agent.journal import Entry, Journal, Journals, journal_file
from edgetune.agent.kinds import handler_on, without_header
from edgetune.agent.observe import observe_all, read_settings, stored_value
from edgetune.agent.protocol import (
    DIGEST,
    TUNING,
    Failed,
    Json,
    Refused,
    Request,
    or_none,
)
from edgetune.agent.undo import above
from edgetune.agent.vocabulary.grammar import LINE
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.places import HANDED_OVER, NOT_READY, OURS
from edgetune.agent.vocabulary.values import Value, alike, shown


class AsIf(Host):
    """A host some of whose files have another content, or are gone (None); for reading alone."""

    def __init__(self, host: Host, files: Mapping[str, Optional[bytes]]) -> None:
        super().__init__(host.root)
        self._files = files

    def exists(self, name: str) -> bool:
        if name in self._files:
            return self._files[name] is not None
        return super().exists(name)

    def names(self, directory: str) -> List[str]:
        ours = {os.path.basename(n): n for n in self._files if os.path.dirname(n) == directory}
        names = {*super().names(directory), *ours}
        return sorted(n for n in names if self._files.get(ours.get(n, ""), b"") is not None)

    def read(self, name: str) -> bytes:
        if name in self._files:
            return self._content(name)
        return super().read(name)

    def kept(self, name: str) -> Tuple[bytes, Metadata]:
        if name in self._files:
            return self._content(name), NEW_FILE
        return super().kept(name)

    def _content(self, name: str) -> bytes:
        content = self._files[name]
        if content is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return content


Files = Mapping[str, Tuple[str, str]]
"""What becomes of each of our files: its new name, and its content without our marks."""


def renamed(host: Host, journal: Journal) -> Files:
    """What becomes of each file with our marks that keeps a tuning over a boot.

    What a person changed in one stays; one that is gone is left out.
    """
    ours = [name for name in journal.files if name.rpartition("/")[2].startswith(OURS)]
    texts = {name: without_header(decode(host.read(name))) for name in ours if host.exists(name)}
    for entry in journal.entries:
        if entry.stored:
            handler = handler_on(host, entry.setting.kind)
            texts.update(handler.unmarked(entry.setting.target))
    return {
        name: (_new_name(name, journal.rank, journal.tuning), text) for name, text in texts.items()
    }


def _new_name(name: str, rank: str = "", tuning: str = "") -> str:
    directory, _, base = name.rpartition("/")
    return f"{directory}/{HANDED_OVER}{base[len(OURS) :].replace(rank, tuning, 1)}"


def obstacles(host: Host, journal: Journal, files: Files) -> Iterator[str]:
    """Why a tuning cannot be handed over as it stands, each by the name of what is in the way."""
    if journal.state != "confirmed":
        yield f"{journal.tuning} is {journal.state}"
        return
    others = [one for one in Journals(host).all() if one.tuning != journal.tuning]
    below = [one for one in others if journal.tuning in [each.tuning for each in above(host, one)]]
    for other in below:
        yield f"{journal.tuning} stands on {other.tuning}: hand that over first"
    if below:
        # What else there is to say would come of that.
        return
    later = [one for one in others if one.sequence > journal.sequence]
    for row in drift_of(host, journal, later):
        yield f"{row.setting.id} {row.reason}"
    # A boot loader has one file for a parameter, whichever tuning sets it.
    ids = {e.setting.id for e in journal.entries if e.setting.kind == "kernel.cmdline"}
    for other in others:
        for id in sorted(ids & {e.setting.id for e in other.entries}):
            yield f"{other.tuning} sets {id}, too: take that back first"
    for entry in journal.entries:
        if entry.stored and by_hook(host, entry):
            yield f"{entry.setting.id} is kept by edgetune's boot hook, and by no file alone"
    for name, (new, _) in files.items():
        yield from _in_the_way(host, journal, name, new)
    gone: Dict[str, Optional[bytes]] = dict.fromkeys([*files, journal_file(journal.tuning)])
    then = AsIf(host, {**gone, **{new: text.encode() for new, text in files.values()}})
    yield from _lost_at_boot(host, [journal, *others], then)


def _in_the_way(host: Host, journal: Journal, old: str, new: str) -> Iterator[str]:
    if host.exists(new) and new not in journal.files:
        yield f"{new} is there already: move it away"
    directory = old.rpartition("/")[0]
    # Nobody but update-grub can tell what another of its files would make of ours.
    for name in host.names(directory) if old.endswith(".cfg") else []:
        if new < f"{directory}/{name}" < old and name.endswith(".cfg"):
            yield f"{directory}/{name} is read between {new} and {old}"


def _lost_at_boot(host: Host, journals: List[Journal], then: Host) -> Iterator[str]:
    """What would be another value at the next boot, but for what the boot hook keeps."""
    for journal in journals:
        for entry in journal.entries:
            if entry.stored and by_hook(host, entry):
                continue
            now, left = _stored(host, entry), _stored(then, entry)
            if not alike(now, left):
                what = f"a boot would make it {shown(left)}, not {shown(now)}"
                yield f"{entry.setting.id} of {journal.tuning}: {what}"


def _stored(host: Host, entry: Entry) -> Optional[Value]:
    with host.read_cache():
        return or_none(stored_value, handler_on(host, entry.setting.kind), entry.setting)


def _hand_over(host: Host, journal: Journal, files: Files) -> None:
    """Rename the files, and forget the journal; Failed with all as before where it does not hold.

    Called for a tuning without obstacles.
    """
    journals = Journals(host)
    old = {name: remember_file(host, name) for name in files}
    new = {name: remember_file(host, name) for name, _ in files.values()}
    journal.files = {**new, **journal.files}
    journals.save(journal)
    try:
        for name, (target, text) in files.items():
            host.write(target, text.encode(), like=name)
        for name in files:
            if name in journal.files:
                host.remove(name)
        reload_changed(host, journal)
        later = [other for other in Journals(host).all() if other.sequence > journal.sequence]
        wrong = [f"{row.setting.id} {row.reason}" for row in drift_of(host, journal, later)]
        if wrong:
            raise Failed(f"without edgetune's files it does not hold: {'; '.join(wrong)}")
    except Exception:
        for name, was in [*old.items(), *((name, journal.files[name]) for name in new)]:
            restore_file(host, name, was)
        reload_changed(host, journal)
        raise
    finish(host, journal.tuning, [entry.setting for entry in journal.entries])


def finish(host: Host, tuning: str, settings: Sequence[Setting]) -> None:
    """Forget a tuning whose files are handed over; also what an agent left that was killed here."""
    journals = Journals(host)
    journals.forget(tuning)
    BootHook(host).sync()
    standing = {entry.setting.id for journal in journals.all() for entry in journal.entries}
    for setting in settings:
        handler = handler_on(host, setting.kind)
        for name in [] if setting.id in standing else handler.unmarked(setting.target):
            if host.exists(_new_name(name)):
                host.remove(name)


def hand_over(host: Host, request: Request) -> Json:
    """Rename the files that keep a tuning, without our marks, and forget it; safe to repeat.

    ``files`` says by the name of each file its new one; also with ``dry_run``, which changes
    nothing. Where the tuning does not stand (``found`` is False), ``wrong`` says which settings are
    not as wanted now and after a boot. Refused, with all that is in the way, where anything would
    not be kept.
    """
    epoch = request.epoch()
    dry_run = request.flag("dry_run")
    tuning = request.text("tuning", TUNING)
    digest = request.text("digest", DIGEST)
    rollout = request.text("rollout", LINE)
    settings = read_settings(request)
    request.done()
    with host.lock():
        if not dry_run:
            host.fence(epoch)
        if not host.ready:
            raise Refused(f"{host.text(NOT_READY, 'a rollout')} has drained this host")
        for why in Journals(host).damaged().values():
            raise Refused(why)
        journal = Journals(host).load(tuning)
        if journal is None:
            if not dry_run:
                finish(host, tuning, settings)
            rows = observe_all(host, settings, tuning)
            wrong = [f"{row.setting.id} {row.reason}" for row in rows if not row.as_wanted]
            return {"files": {}, "found": False, "wrong": wrong}
        if (journal.rollout, journal.digest) != (rollout, digest):
            by = f"{journal.rollout}, digest {journal.digest}"
            raise Refused(f"{tuning} stands here by {by}, and not by {rollout}, digest {digest}")
        files = renamed(host, journal)
        found = list(dict.fromkeys(obstacles(host, journal, files)))
        if found:
            raise Refused("; ".join(found))
        if not dry_run:
            _hand_over(host, journal, files)
        moved = {name: new for name, (new, _) in files.items()}
        return {"files": moved, "found": True, "wrong": []}
