# SPDX-License-Identifier: Apache-2.0
"""A rollout with samples of its baseline and its soak, of which a test says how they differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable

from edgetune.base import clock
from edgetune.base.documents.reading import encoded
from edgetune.base.documents.sample import Sample
from edgetune.base.documents.table import SampleTable
from edgetune.net.databases import Database
from edgetune.net.metrics.pop_samples import PopSamples
from edgetune.rollout.ownership.lease import as_owner
from tests.support.builders import as_samples, samples, table_of
from tests.support.world import World

TIMES = {"interval": 10, "baseline": 600, "soak": 610, "warmup": 10, "looks": 4}
USUAL = 3.0
SEEDS = 12, 15


class Soaking(World):
    """A rollout whose samples are put into the store; hosts drop ``USUAL`` a second before."""

    def __init__(self, folder: Path, seeds: tuple[int, int] = SEEDS, **planned: Any) -> None:
        super().__init__(folder, **{**TIMES, **planned})
        self.seeds = seeds
        self.mark("baseline")
        self.now = clock.wall()
        self.keep("baseline", [self.now - 1400, self.now - 800])
        self.count(dict.fromkeys(self.hosts_of("test", "control"), USUAL), self.now - 1400, 0)

    def hosts_of(self, *names: str) -> list[str]:
        return [h for name in names for s in self.plan.strata.values() for h in s.named[name]]

    def keep(self, field: str, value: Any) -> None:
        opened = as_owner(self.context, self.rollout)
        setattr(opened.head, field, value)
        opened.save()

    def count(self, rates: dict[str, float], start: float, window: int) -> None:
        seconds = 600 if window else 1400
        taken = samples(rates, start, seconds, f"boot {window}", seed=self.seeds[window])
        self.context.samples.add("lab1", as_samples(taken))

    def soak(self, test: float | None, began: float) -> None:
        """The soak began that many seconds ago; test hosts drop ``test`` in it, and with None
        nobody samples them."""
        self.change()
        self.keep("soak", [self.now - began, self.now - began + 600])
        if test is None:
            return
        control = dict.fromkeys(self.hosts_of("control"), USUAL)
        rates = {**dict.fromkeys(self.hosts_of("test"), test), **control}
        self.count(rates, self.now - began, 1)

    def change(self) -> None:
        """Hosts are changed: the time until then, in which they were sampled, is the soak's."""
        for state in ("changing", "soaking"):
            self.mark(state)
        with Database(self.context.config.coordination).transaction() as db:
            db.execute("DELETE FROM samples WHERE time > ?", (self.now - 795,))

    def alter(self, change: Callable[[dict[str, Any]], None]) -> None:
        """From now on samples are read altered."""
        self.context.samples = Altered(self.context.samples, change)

    def looked(self) -> list[tuple[str, str]]:
        """Verdict and decision of every look that is in the record."""
        opened = as_owner(self.context, self.rollout)
        taken = [opened.look(number) for number in range(opened.head.looks)]
        return [(look.verdict, look.decision) for look in taken]


class Altered:
    """Stored samples that are read altered."""

    def __init__(self, samples: PopSamples, alter: Callable[[dict[str, Any]], None]) -> None:
        self._samples, self._alter = samples, alter

    def add(self, pop: str, samples: Sequence[Sample], number: int = 0) -> None:
        self._samples.add(pop, samples, number)

    def window(self, pop: str, start: float, end: float) -> SampleTable:
        found = [encoded(sample) for sample in self._samples.window(pop, start, end).rows()]
        for sample in found:
            self._alter(sample)
        return table_of(found)


def soaking(folder: Path, test: float | None, began: float, **planned: Any) -> Soaking:
    """A soak after a baseline that was checked, as ``Soaking.soak`` says."""
    world = Soaking(folder, **planned)
    world.run("check_baseline")
    world.soak(test, began)
    return world
