# SPDX-License-Identifier: Apache-2.0
"""Whether rounds of congestion control kept their promises, from what hosts and records show.

Like ``auditor`` it knows nothing of edgetune but what it promises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.chaos.auditor import Broken

ROLLED_BACK = "rolled_back"
LATE = 8.0
"""Seconds in which a host has to take back what nobody renewed."""


@dataclass(frozen=True)
class Stands:
    """What stands on a host until a time, in epoch seconds; number 0 where it does not tell."""

    number: int
    checksum: str
    prefixes: frozenset[str]
    until: float


@dataclass(frozen=True)
class Known:
    """What the records say: the largest number that a host may have been told, the state, and the
    prefixes that are held out."""

    number: int
    state: str
    held_out: frozenset[str]


@dataclass(frozen=True)
class Told:
    """One look at all: hosts first, the records after. None is nothing, or not to be seen."""

    time: float
    hosts: Mapping[str, Stands | None]
    known: Known | None


def rounds(sights: Sequence[Told], under_way: float = 0.0) -> Iterator[Broken]:
    """All that can be said of looks that follow each other closely.

    What a round had sent before a rollback may arrive ``under_way`` seconds after it.
    """
    back = float("inf")
    ended: dict[str, float] = {}
    for earlier, later in zip(sights, sights[1:]):
        back = min(back, earlier.time) if _is_back(earlier, later) else float("inf")
        for name, now in later.hosts.items():
            if now is None:
                continue
            was = earlier.hosts.get(name)
            if not now.number:
                what = f"{name} has routes of ours, and nothing that tells of them"
                yield Broken("whole", what, later.time)
                continue
            if was is not None and now.until < was.until:
                # A host that takes it back lets its time be over first.
                ended[name] = later.time
            if later.time - max(now.until, ended.get(name, now.until)) > LATE:
                yield Broken("expiry", f"{name} treats what ended long ago", later.time)
            yield from _held_out(name, now, later)
            what = _told(was, now)
            if what and later.time - back >= under_way:
                yield Broken("roll back", f"{name} was {what} after the rollback", later.time)
            if is_new(was, now) and (later.known is None or later.known.number < now.number):
                yield Broken("record", f"{name} has {now.number}, which no record has", later.time)


def is_new(was: Stands | None, now: Stands) -> bool:
    """Whether a host was told another configuration than it had."""
    return was is None or (was.number, was.checksum) != (now.number, now.checksum)


def stopped(sights: Sequence[Told], start: float, end: float) -> Iterator[Broken]:
    """No host is told anything from ``start`` to ``end``, epoch seconds."""
    for earlier, later in zip(sights, sights[1:]):
        if start < earlier.time and later.time < end:
            for name, now in later.hosts.items():
                what = _told(earlier.hosts.get(name), now) if now else ""
                if what:
                    yield Broken("stop", f"{name} was {what} while all was stopped", later.time)


def _told(was: Stands | None, now: Stands) -> str:
    if is_new(was, now):
        return f"told {now.number}"
    return "renewed" if was is not None and now.until > was.until else ""


def _held_out(name: str, now: Stands, later: Told) -> Iterator[Broken]:
    held = now.prefixes & (later.known.held_out if later.known else frozenset())
    if held:
        yield Broken("hold-out", f"{name} treats {', '.join(sorted(held))}", later.time)


def _is_back(earlier: Told, later: Told) -> bool:
    """Whether the records said before that nothing is treated, and say so still."""
    return all(one.known is not None and one.known.state == ROLLED_BACK for one in (earlier, later))


def one_content(sights: Sequence[Told]) -> Iterator[Broken]:
    """No number has two contents, where no record was lost."""
    seen: dict[int, str] = {}
    for sight in sights:
        for name, now in sight.hosts.items():
            if now is not None and seen.setdefault(now.number, now.checksum) != now.checksum:
                yield Broken("once", f"{name} has another {now.number} than others", sight.time)


def alike(last: Told, chosen: frozenset[str]) -> Iterator[Broken]:
    """Every host treats what was chosen and is not held out, and nothing else."""
    held = last.known.held_out if last.known else frozenset()
    for name, now in last.hosts.items():
        found = now.prefixes if now else frozenset()
        if found != chosen - held:
            many = f"{len(found - chosen | found & held)} too many, {len(chosen - held - found)}"
            yield Broken("told", f"{name} treats {many} too few", last.time)


def nothing_left(last: Told) -> Iterator[Broken]:
    """After a rollback nothing of ours stands anywhere."""
    for name, now in last.hosts.items():
        if now is not None:
            yield Broken("roll back", f"{name} has {now.number} still", last.time)
