# SPDX-License-Identifier: Apache-2.0
"""Rounds of congestion control under faults: what a seed says dies, lies, is late, lost or stopped.

Every process dies at a side effect that a seed draws, or at each of them in turn. The auditor of
``bench.chaos.told`` looks at hosts and records at each side effect.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable
from unittest import mock

import pytest

from bench.chaos import told
from bench.chaos.auditor import Broken
from bench.chaos.told import Known, Stands, Told
from edgetune.base.documents.congestion import ROUND
from edgetune.base.documents.rounds import Rounds
from edgetune.base.errors import EdgetuneError
from edgetune.net.databases import Database
from edgetune.rollout.steps.resume_all import resume_all
from edgetune.rollout.steps.stop_all import stop_all
from edgetune.wings.congestion.rounds import work
from edgetune.wings.congestion.rounds.steps.resume_congestion import resume_congestion
from edgetune.wings.congestion.rounds.steps.roll_back_congestion import roll_back_congestion
from tests.support.rounds_world import RoundsWorld
from tests.support.world import Died

EVERY = ("e000", "e001", "e002", "e003")
SEEDS = range(12)
LOST = {"rounds": ("congestion",), "record": ("records",), "both": ("congestion", "records")}


class Chaos:
    """A world that an auditor looks at, at each side effect."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.world = world = RoundsWorld(folder)
        self.draw = random.Random(seed)
        self.sights: list[Told] = []
        self.lost = False
        self.died: list[str] = []
        world.moments.at = lambda what: self.look()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """With writes of rounds that are side effects, too."""
        opened = work.open_rounds

        def watched(config: Any) -> Any:
            kept: Any = opened(config)
            put = kept.put

            def around(rounds: Rounds) -> None:
                with self.world.moments.around("put rounds"):
                    put(rounds)

            kept.put = around
            return kept

        with mock.patch.object(work, "open_rounds", watched), self.world.at_work():
            yield

    def look(self) -> None:
        world = self.world
        hosts: dict[str, Stands | None] = dict.fromkeys(EVERY)
        for name, own in world.hosts.standing_there.items():
            prefixes = frozenset(each["prefix"] for each in own["prefixes"])
            ends = world.hosts.ends[name]
            hosts[name] = Stands(own["number"], own["checksum"], prefixes, ends)
        self.sights.append(Told(world.now, hosts, self._known()))

    def _known(self) -> Known | None:
        try:
            decided, held = self.world.decided, frozenset[str]()
            with suppress(AssertionError):
                if self.world.kept.selection:
                    chosen = self.world.chosen.items()
                    held = frozenset(prefix for prefix, own in chosen if own["held_out"])
        except (AssertionError, EdgetuneError):
            return None
        return Known(decided.number, decided.state, held)

    def take(self, die_at: int = -1, step: Any = None, later: float = ROUND) -> None:
        """One round or another step; the process dies at a side effect, if that comes."""
        moments, world = self.world.moments, self.world
        moments.seen.clear()
        moments.die_at = die_at
        try:
            with self.at_work(), suppress(EdgetuneError):
                if step is None:
                    world.clock.wait(later)
                    # The keepers of hosts wait for nobody.
                    world.hosts.expire(world.now)
                    world.round(0)
                else:
                    step(world.context, "lab1", requested_by="ana")
        except Died as died:
            self.died.append(str(died))
        finally:
            moments.die_at = -1
        self.look()

    def lose(self, what: str) -> None:
        """Records are gone, as with a disk."""
        with Database(self.world.config["coordination"]).transaction() as db:
            for table in LOST[what]:
                db.execute(f"DELETE FROM {table}")
        self.lost = True

    def mend(self) -> None:
        """Nothing is broken any more."""
        hosts = self.world.hosts
        for broken in (hosts.refusing, hosts.mute, hosts.late, hosts.changes):
            broken.clear()
        self.world.sockets.away = ""
        resume_all(self.world.context, "ana")

    def break_something(self) -> None:
        """What the seed says."""
        hosts, sockets, draw = self.world.hosts, self.world.sockets, self.draw
        host = draw.choice(EVERY)
        lie = draw.choice([{"number": 9}, {"kept": False}, {"prefixes": 3}])
        lost, slow = draw.choice([*LOST]), draw.sample(self.world.fast, 4)
        faults: list[Callable[[], object]] = [
            lambda: hosts.mute.add(host),
            lambda: hosts.late.add(host),
            lambda: hosts.changes.update({host: lie}),
            lambda: hosts.refusing.update({host: "it has no bbr"}),
            lambda: hosts.forget(host),
            lambda: self.lose(lost),
            lambda: setattr(sockets, "away", "lab1: ClickHouse at http://ch: timed out"),
            lambda: stop_all(self.world.context, "ana"),
            lambda: sockets.rates.update(dict.fromkeys(slow, draw.uniform(5e3, 9e3))),
            self.mend,
        ]
        draw.choice(faults)()

    def broken(self) -> list[Broken]:
        """All that was not kept until now."""
        found = [*told.rounds(self.sights)]
        return found if self.lost else [*found, *told.one_content(self.sights)]

    def comes_to_rest(self) -> list[Broken]:
        """What is not as promised once nothing is broken any more."""
        self.mend()
        known = self._known()
        if known and known.state == "rolled_back":
            self.take(step=resume_congestion)
        # What stands with a number that was lost ends by itself.
        for _ in range(3 if self.lost else 0):
            self.take(later=1900)
        for _ in range(5 if self.lost else 2):
            self.take()
        found = [*told.alike(self.sights[-1], frozenset(self.world.chosen))]
        self.take(step=roll_back_congestion)
        found += told.nothing_left(self.sights[-1])
        self.take()
        return [*found, *told.nothing_left(self.sights[-1]), *self.broken()]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_keeps_every_promise(seed: int, tmp_path: Path) -> None:
    chaos = Chaos(tmp_path, seed)
    draw = chaos.draw
    for _ in range(14):
        if draw.random() < 0.6:
            chaos.break_something()
        step = draw.choice([None] * 8 + [roll_back_congestion, resume_congestion])
        die_at = draw.randrange(24) if draw.random() < 0.5 else -1
        chaos.take(die_at, step, later=draw.choice([ROUND, ROUND, ROUND, 1, 2 * ROUND, 4000]))
    broken = [*chaos.broken(), *chaos.comes_to_rest()]
    assert broken == [], chaos.died


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("step", [None, roll_back_congestion], ids=["round", "roll back"])
@pytest.mark.parametrize("fault", ["", "mute", "late", "lie"])
def test_a_process_may_die_at_each_side_effect(step: Any, fault: str, tmp_path: Path) -> None:
    """Beside a host that is away, tells nothing of what it did, or lies."""
    at = 0
    while True:
        (folder := tmp_path / str(at)).mkdir()
        chaos = Chaos(folder)
        for _ in range(4):
            chaos.take()
        for prefix in chaos.world.fast[:4]:
            chaos.world.sockets.rates[prefix] = 9e3
        chaos.take()
        hosts = chaos.world.hosts
        assert hosts.treated()
        hosts.mute |= {"e001"} if fault == "mute" else set()
        hosts.late |= {"e001"} if fault == "late" else set()
        hosts.changes.update({"e001": {"checksum": "sha256:0"}} if fault == "lie" else {})
        chaos.take(at, step)
        if not chaos.died:
            break
        assert [*chaos.broken(), *chaos.comes_to_rest()] == [], chaos.died
        at += 5 if fault else 1
    assert at >= 10


ONE = Stands(3, "a", frozenset(["203.0.1.0/24"]), 900.0)
RENEWED, OVER, OTHER = (
    replace(ONE, until=950.0),
    replace(ONE, until=0.0),
    replace(ONE, checksum="b"),
)
STRANGE = Stands(0, "", ONE.prefixes, 2.0)
KNOWN, BACK = Known(3, "tuning", frozenset(["203.0.2.0/24"])), Known(4, "rolled_back", frozenset())
THERE = ((0, None), (1, ONE))
LATE = ["expiry: e treats what ended long ago"]
NO_RECORD = ["record: e has 3, which no record has"]
TOLD_AFTER = ["roll back: e was told 3 after the rollback"]
RUNS_OUT = ((700, ONE), (701, OVER), (709, OVER))
UNDER_WAY = ((0, None), (1, None), (2, None), (4, ONE))


@pytest.mark.parametrize(
    ("known", "sights", "under_way", "found"),
    [
        (None, THERE, 0, NO_RECORD),
        (Known(2, "tuning", frozenset()), THERE, 0, NO_RECORD),
        (Known(3, "tuning", ONE.prefixes), THERE, 0, ["hold-out: e treats 203.0.1.0/24"]),
        (
            *(KNOWN, ((1, STRANGE), (2, STRANGE)), 0),
            ["whole: e has routes of ours, and nothing that tells of them"],
        ),
        # It is over before it is gone, where nobody renewed it or it was taken back.
        (KNOWN, ((1, ONE), (907, ONE), (909, ONE)), 0, LATE),
        (BACK, RUNS_OUT, 0, []),
        (BACK, (*RUNS_OUT, (710, OVER)), 0, LATE),
        (BACK, THERE, 0, TOLD_AFTER),
        (BACK, ((1, ONE), (2, RENEWED)), 0, ["roll back: e was renewed after the rollback"]),
        # What was under way at a rollback may come.
        (BACK, UNDER_WAY, 5, []),
        (BACK, UNDER_WAY, 4, TOLD_AFTER),
    ],
)
def test_the_auditor_finds_what_breaks_a_promise(
    known: Known | None, sights: Any, under_way: float, found: list[str]
) -> None:
    told_of = [Told(at, {"e": own}, known) for at, own in sights]
    seen = told.rounds(told_of, under_way)
    assert [f"{own.promise}: {own.what}" for own in seen] == found


def whats(found: Iterator[Broken]) -> list[str]:
    return [own.what for own in found]


def test_the_auditor_finds_what_stands_in_the_end_and_while_all_is_stopped() -> None:
    nothing, there = Told(0, {"e": None}, KNOWN), Told(1, {"e": ONE}, KNOWN)
    gone, chosen = Told(905, {"e": None}, BACK), ONE.prefixes | KNOWN.held_out
    assert (
        whats(told.rounds([nothing, there, there, gone])) == whats(told.alike(there, chosen)) == []
    )
    assert whats(told.nothing_left(gone)) == whats(told.one_content([there, there])) == []
    assert whats(told.nothing_left(there)) == ["e has 3 still"]
    both = Told(0, {"e": ONE, "f": OTHER, "g": None}, KNOWN)
    assert whats(told.one_content([both])) == ["f has another 3 than others"]
    assert whats(told.alike(both, ONE.prefixes)) == ["g treats 0 too many, 1 too few"]
    came = ((1, None), (2, ONE), (3, ONE), (4, RENEWED), (5, None))
    sights = [Told(at, {"e": own}, KNOWN) for at, own in came]
    assert whats(told.stopped(sights, 0, 9)) == [
        "e was told 3 while all was stopped",
        "e was renewed while all was stopped",
    ]
    assert whats(told.stopped(sights, 2, 4)) == whats(told.stopped(sights, 4, 9)) == []
