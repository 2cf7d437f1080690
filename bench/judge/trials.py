# SPDX-License-Identifier: Apache-2.0
"""Replicates, drawn and judged in blocks, by as many processes as may run at once.

Each replicate has a seed of its own, made of the run's seed, what is simulated, and its number:
whatever is left out, and whoever runs it, it is the same one.
"""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing.pool
import os
import signal
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Callable, Protocol, TypeVar

import numpy as np

from bench.judge import peers
from bench.judge.scenarios import SCENARIOS, Replicate, draw

T = TypeVar("T")
R = TypeVar("R")

LOOKS = tuple(range(15, 241, 15))
"""Minutes of the soak."""
OURS = "bench.judge.ours"
BLOCK = 20
"""Replicates that a process takes at once."""
EFFECTS = ((1.25, 0), (1.5, 0), (2.0, 0), (1.5, 120))
IMPROVEMENTS = {"full": (0.8, 0.7), "few": (0.8, 0.7)}
SOAKS = (30, 60, 90, 120, 180, 240)
"""Minutes that a soak is planned to last, at the end of which an improvement is promoted."""
MAIN = ("full", "few", "sparse", "five_pops")
"""Scenarios whose effects are judged in all replicates, not only in a third of them."""


class Judge(peers.Peer, Protocol):
    """Ours: it also says what got better, and by how much."""

    def improved(self, replicate: Replicate, looks: Sequence[int]) -> bool:
        """Whether at any of the `looks` drops are proven to be fewer."""
        ...

    def compare(self, replicate: Replicate) -> tuple[float, float, float, str]:
        """Ratio of ratios of the drops at the end of the soak, its interval, and the verdict."""
        ...


@dataclass(frozen=True)
class Case:
    """What is simulated: drops of test hosts are multiplied by `effect` from minute `onset` on."""

    scenario: str
    effect: float = 1.0
    onset: int = 0

    @property
    def harm(self) -> str:
        """The effect in words."""
        return f"x{self.effect:g}" + (f" from {self.onset} min on" if self.onset else "")

    def replicate(self, seed: int, number: int) -> Replicate:
        """The replicate of that number."""
        key = (zlib.crc32(self.scenario.encode()), round(1000 * self.effect), self.onset, number)
        dice = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
        return draw(SCENARIOS[self.scenario], dice, self.effect, self.onset)


@dataclass(frozen=True)
class Sizes:
    """How many replicates are judged without and with an effect, by slow peers of each, for each
    promise, and of each fleet."""

    null: int
    effect: int
    slow: int
    promise: int
    fleet: int

    def share(self, part: float) -> Sizes:
        """A part of each of them."""
        return Sizes(**{name: max(1, round(part * own)) for name, own in asdict(self).items()})


@dataclass(frozen=True)
class Block:
    """Consecutive replicates of a case, judged with the slow peers or without them."""

    case: Case
    seed: int
    numbers: range
    with_slow: bool


@dataclass
class Decisions:
    """What one method said of consecutive replicates of a case, from the first on."""

    alarms: list[int | None] = field(default_factory=list)
    """Minute of the look at which it rolled back."""
    improved: list[list[int]] = field(default_factory=list)
    """Those of ``SOAKS`` after which it says that drops got fewer; only where nothing got worse."""
    looks: int = 0
    cpu: float = 0.0
    """Looks taken, and seconds of CPU for them."""

    def add(self, other: Decisions) -> None:
        """Take those of the following block over."""
        self.alarms += other.alarms
        self.improved += other.improved
        self.looks += other.looks
        self.cpu += other.cpu


Trials = dict[Case, dict[str, Decisions]]
"""By case, then by method."""
Each = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
"""Does the work of all items, in order (see ``parts``)."""


def cases(scenarios: Iterable[str]) -> list[Case]:
    """No effect and each harm in every scenario, and in some an improvement, too."""
    found = []
    for name in scenarios:
        found += [Case(name), *(Case(name, *effect) for effect in EFFECTS)]
        found += [Case(name, effect) for effect in IMPROVEMENTS.get(name, ())]
    return found


def ours() -> Judge | None:
    """Our judge, if it is there."""
    if importlib.util.find_spec(OURS) is None:
        return None
    judge: Judge = importlib.import_module(OURS).Ours()
    return judge


def variants() -> Sequence[peers.Peer]:
    """What else ours could have been."""
    found: Sequence[peers.Peer] = importlib.import_module(OURS).VARIANTS if ours() else ()
    return found


def run(chosen: Iterable[Case], sizes: Sizes, seed: int, each: Each) -> Trials:
    """Judge all of it. What interrupts this ends the processes, too."""
    blocks = [block for case in chosen for block in _blocks(case, sizes, seed)]
    trials: Trials = {}
    for block, found in zip(blocks, each(run_block, blocks)):
        of_case = trials.setdefault(block.case, {})
        for name, decisions in found.items():
            of_case.setdefault(name, Decisions()).add(Decisions(**decisions))
    return trials


def run_block(block: Block) -> dict[str, dict[str, Any]]:
    """Judge one block, by method: Decisions as documents."""
    own = ours()
    methods: list[peers.Peer] = [own] if own else []
    methods += variants() if block.with_slow else []
    methods += [
        peer for peer in peers.installed()[0] if block.with_slow or not isinstance(peer, peers.SLOW)
    ]
    found = {method.name: Decisions() for method in methods}
    for number in block.numbers:
        replicate = block.case.replicate(block.seed, number)
        for method in methods:
            _decide(method, replicate, found[method.name])
        if block.case.effect <= 1:
            soaks = SOAKS if block.case.effect < 1 else SOAKS[-1:]
            for method in methods:
                if claim := _claim(method):
                    found[method.name].improved.append([n for n in soaks if claim(replicate, n)])
    return {name: asdict(decisions) for name, decisions in found.items()}


def _claim(method: peers.Peer) -> Callable[[Replicate, int], bool] | None:
    """How it tells that drops got fewer in a soak of so many minutes, if it does."""
    own = ours()
    if own and method.name == own.name:
        return lambda replicate, soak: own.improved(replicate, [n for n in LOOKS if n <= soak])
    if isinstance(method, peers.KEEP_ALPHA):
        return lambda replicate, soak: peers.improved(method, replicate, soak)
    return None


def _decide(method: peers.Peer, replicate: Replicate, decisions: Decisions) -> None:
    begun = time.process_time()
    alarm = method.decide(replicate, LOOKS)
    decisions.cpu += time.process_time() - begun
    decisions.looks += len(LOOKS) if alarm is None else LOOKS.index(alarm) + 1
    decisions.alarms.append(alarm)


def _blocks(case: Case, sizes: Sizes, seed: int) -> Iterator[Block]:
    with_effect = sizes.effect if case.scenario in MAIN else max(sizes.slow, sizes.effect // 3)
    count = sizes.null if case.effect == 1 else with_effect
    for first, last, with_slow in ((0, sizes.slow, True), (sizes.slow, count, False)):
        for start in range(first, last, BLOCK):
            yield Block(case, seed, range(start, min(start + BLOCK, last)), with_slow)


def spread(work: Callable[[T], R], items: Sequence[T], jobs: int) -> Iterator[R]:
    """Do the work of all items, in order, in so many processes. An interrupt ends them, too."""
    if jobs == 1:
        yield from map(work, items)
        return
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the processes are to keep to their CPU
    with _start(jobs) as pool:
        yield from pool.imap(work, items)


def _start(jobs: int) -> multiprocessing.pool.Pool:
    """Processes that leave an interrupt to this one, which ends them."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # they inherit it
    try:
        return multiprocessing.get_context("spawn").Pool(jobs)
    finally:
        signal.signal(signal.SIGINT, before)
