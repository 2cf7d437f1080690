# SPDX-License-Identifier: Apache-2.0
"""A paused PoP: no further batch begins there, and no rollout, until its cause is over.

Each cause has a key of its own (``edgetune.pause.CAUSE.POP``) and is lifted alone: a surge ends by
itself, a lost host and what somebody asked for wait for a person. Hosts that are out are finished
and given back, looks go on, and no rollback is ever held up.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from edgetune import PACK
from edgetune.documents.head import ENDED, Head
from edgetune.documents.reading import check_fields, read_document
from edgetune.errors import DamagedError, InputError, RefusedError
from edgetune.freezes import in_force, read_written
from edgetune.report.text import clock
from edgetune.rollout.heads import all_heads
from edgetune.rollout.site import Site
from edgetune.rollout.store import value_of
from edgetune.texts import command

CAUSES = ("asked", "surge", "lost_host")
_SCHEMA = 1


@dataclass(frozen=True)
class Pause:
    """Who paused a PoP and why; when it is no longer ``paused``, who resumed it. ``at`` is when."""

    paused: bool
    at: float
    by: str
    reason: str = ""

    @property
    def text(self) -> str:
        """Who and why, in a few words."""
        return f"by {self.by or 'unknown'}" + (f": {self.reason}" if self.reason else "")


def pause_pop(
    site: Site, pop: str, cause: str = "asked", reason: str = "", by: str = ""
) -> dict[str, Any]:
    """Let nothing more begin on a PoP for this cause; a second time changes nothing."""
    if cause not in CAUSES:
        raise InputError("parameter", "cause", f"{cause!r} is none of {', '.join(CAUSES)}")
    name = site.inventory.pop(pop).name
    standing = _standing(pauses_of(site, name))
    if cause in standing:
        return _answer(site, name, False, f"{name} is paused already ({_because(standing)})")
    _put(site, name, cause, Pause(True, time.time(), by, reason))
    why = _because({cause: Pause(True, 0, by, reason)})
    return _answer(site, name, True, f"{name} is paused ({why}); no further batch begins there")


def resume_pop(site: Site, pop: str, cause: str = "", by: str = "") -> dict[str, Any]:
    """Lift a pause of this cause, or every one of a PoP; a second time changes nothing."""
    if cause and cause not in CAUSES:
        raise InputError("parameter", "cause", f"{cause!r} is none of {', '.join(CAUSES)}")
    standing = _standing(all_pauses(site).get(pop, {}))
    if not standing:
        return _answer(site, pop, False, f"{site.inventory.pop(pop).name} is not paused")
    lifted = {own: pause for own, pause in standing.items() if cause in ("", own)}
    for own in lifted:
        _put(site, pop, own, Pause(False, time.time(), by))
    left = {own: pause for own, pause in standing.items() if own not in lifted}
    still = f"{pop} is still paused ({_because(left)})" if left else f"{pop} goes on"
    was = f"; it was paused ({_because(lifted)})" if lifted else ""
    return _answer(site, pop, bool(lifted), still + was)


def refuse_if_paused(site: Site, pop: str) -> None:
    """RefusedError while a PoP is paused."""
    why = why_paused(site, pop)
    if why:
        raise RefusedError(f"{why}; {command('resume_pop', pop=pop)} lets it go on")


def why_paused(site: Site, pop: str) -> str:
    """That a PoP is paused, by whom and why; nothing if it is not."""
    return pause_text(pop, pauses_of(site, pop))


def why_frozen(head: Head) -> str:
    """That a freeze of its campaign is in force for a rollout; nothing if none is."""
    ends = in_force(read_written(head.freezes), time.time())
    return "; ".join(f"{head.pop} is frozen by {name} until {clock(end)}" for name, end in ends)


def pause_text(pop: str, pauses: Mapping[str, Pause]) -> str:
    """The same of pauses that are known."""
    standing = _standing(pauses)
    return f"{pop} is paused ({_because(standing)})" if standing else ""


def pauses_of(site: Site, pop: str) -> dict[str, Pause]:
    """The pauses of a PoP by cause, also those that were lifted."""
    keys = {cause: _key(cause, pop) for cause in CAUSES}
    texts = {cause: value_of(site.store, key) for cause, key in keys.items()}
    return {cause: _load(keys[cause], text) for cause, text in texts.items() if text is not None}


def all_pauses(site: Site) -> dict[str, dict[str, Pause]]:
    """The same by PoP."""
    found: dict[str, dict[str, Pause]] = {}
    for cause in CAUSES:
        prefix = _key(cause, "")
        for key, text in site.store.list(prefix).items():
            found.setdefault(key[len(prefix) :], {})[cause] = _load(key, text)
    return found


def _standing(pauses: Mapping[str, Pause]) -> dict[str, Pause]:
    return {cause: pause for cause, pause in pauses.items() if pause.paused}


def _because(pauses: Mapping[str, Pause]) -> str:
    return "; ".join(f"{cause}, {pause.text}" for cause, pause in pauses.items())


def _put(site: Site, pop: str, cause: str, pause: Pause) -> None:
    site.store.put(_key(cause, pop), json.dumps({"schema": _SCHEMA, **asdict(pause)}))


def _load(key: str, text: str) -> Pause:
    try:
        kept = read_document(key, text)
        kept.pop("schema", None)
        check_fields(key, Pause, kept)
        return Pause(**kept)
    except DamagedError:
        # A key that somebody set by hand is meant to pause; so is one that cannot be read.
        return Pause(True, 0.0, "", text)


def _key(cause: str, pop: str) -> str:
    return f"{PACK}.pause.{cause}.{pop}"


def _answer(site: Site, pop: str, changed: bool, message: str) -> dict[str, Any]:
    """``channel`` is that of the rollout which waits, or goes on, by what changed."""
    heads = all_heads(site) if changed else []
    channels = [head.channel for head in heads if head.pop == pop and head.state not in ENDED]
    channel = channels[-1] if channels else ""
    return {"pop": pop, "changed": changed, "channel": channel, "message": message}
