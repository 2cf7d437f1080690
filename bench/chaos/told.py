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
    """What stands on a host until a time, in epoch seconds."""

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


def rounds(sights: Sequence[Told]) -> Iterator[Broken]:
    """All that can be said of looks that follow each other closely."""
    for earlier, later in zip(sights, sights[1:]):
        for name, now in later.hosts.items():
            if now is None:
                continue
            was = earlier.hosts.get(name)
            if later.time - now.until > LATE:
                yield Broken("expiry", f"{name} treats what ended long ago", later.time)
            if was is None or (was.number, was.checksum) != (now.number, now.checksum):
                yield from _new(name, now, earlier, later)
            elif now.until > was.until and _is_back(earlier, later):
                yield Broken("roll back", f"{name} was renewed after the rollback", later.time)


def _new(name: str, now: Stands, earlier: Told, later: Told) -> Iterator[Broken]:
    if later.known is None or later.known.number < now.number:
        yield Broken("record", f"{name} has {now.number}, which no record has", later.time)
    if _is_back(earlier, later):
        yield Broken("roll back", f"{name} was told {now.number} after the rollback", later.time)
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
