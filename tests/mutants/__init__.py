# SPDX-License-Identifier: Apache-2.0
"""Mistakes made on purpose, one at a time: does a test see each of them?

Each mutation changes one place of a copy of the checkout; then the tests that are named for it
run there. It is killed when one of them fails, and has survived when all pass. The list is our
own: mistakes that would cost requests, or believe what was not proven. A mutation whose text is
no longer in the code is an error of the list.

The exit status is 0 only if all were killed.
"""

from __future__ import annotations

import argparse
import os
import queue
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench._mutation import MutationError, copy_checkout
from tests.mutants.access import ACCESS, CONVERSATIONS, EXPIRY, HELPERS
from tests.mutants.agent import AGENT, LEAVING
from tests.mutants.alerting import ALERTING
from tests.mutants.bmc import BMC
from tests.mutants.congestion import CONGESTION
from tests.mutants.documents import DOCUMENTS
from tests.mutants.export import EXPORT
from tests.mutants.freebsd import FREEBSD
from tests.mutants.inventories import INVENTORIES
from tests.mutants.judge import JUDGE
from tests.mutants.kernels import KERNELS
from tests.mutants.lab import LAB
from tests.mutants.metrics import METRICS
from tests.mutants.mutation import Mutation
from tests.mutants.net import NET
from tests.mutants.options import OPTIONS
from tests.mutants.prometheus import PROMETHEUS
from tests.mutants.rollout import ROLLOUT
from tests.mutants.traffic import (
    AWAY,
    BIRD,
    HOOKS,
    NO_REQUESTS,
    ON_HOSTS,
    REFUSALS,
    SEVERAL,
    TLS,
    TRAFFIC,
)

MUTATIONS: Mapping[str, Sequence[Mutation]] = {
    "rollout": ROLLOUT,
    "traffic": (
        *TRAFFIC,
        *NO_REQUESTS,
        *HOOKS,
        *ON_HOSTS,
        *BIRD,
        *SEVERAL,
        *AWAY,
        *REFUSALS,
        *TLS,
    ),
    "inventories": INVENTORIES,
    "judge": JUDGE,
    "bmc": BMC,
    "access": (*ACCESS, *CONVERSATIONS, *HELPERS, *EXPIRY),
    "agent": (*AGENT, *LEAVING),
    "kernels": KERNELS,
    "congestion": CONGESTION,
    "alerting": ALERTING,
    "metrics": METRICS,
    "net": NET,
    "prometheus": PROMETHEUS,
    "export": EXPORT,
    "freebsd": FREEBSD,
    "options": OPTIONS,
    "documents": DOCUMENTS,
    "lab": LAB,
}
SECONDS = 900.0  # a mutant that makes its tests hang is killed by that, too
PASSED, FAILED = 0, 1  # of pytest


@dataclass(frozen=True)
class Outcome:
    """What became of a mutation: "killed", "survived", or "error" with the reason in `detail`."""

    mutation: Mutation
    word: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.word:9} {self.mutation.name}{f' ({self.detail})' if self.detail else ''}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the mutations, print what became of each; the exit status comes back."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", metavar="WORD", help="rooms, or parts of names")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="copies at once")
    parser.add_argument("--list", action="store_true", help="only name them")
    chosen = parser.parse_args(arguments)
    mutations = choose(chosen.words)
    if chosen.list:
        print(*(mutation.name for mutation in mutations), sep="\n")
        return 0
    failed = failing_without(mutations)
    if failed:
        print(f"mutants: without any mutation, tests fail: {failed}")
        return 1
    outcomes = []
    for outcome in attempt_all(mutations, chosen.jobs):
        print(outcome, flush=True)
        outcomes.append(outcome)
    print(figure(outcomes))
    return 0 if all(outcome.word == "killed" for outcome in outcomes) else 1


def choose(words: Sequence[str]) -> list[Mutation]:
    """The mutations of these rooms, and those whose names have one of the words; all without."""
    return [
        mutation
        for room, mutations in MUTATIONS.items()
        for mutation in mutations
        if not words or any(word == room or word in mutation.name for word in words)
    ]


def figure(outcomes: Iterable[Outcome]) -> str:
    """How many were killed."""
    words = [outcome.word for outcome in outcomes]
    killed, survived = words.count("killed"), words.count("survived")
    errors = f", {words.count('error')} errors of the list" if "error" in words else ""
    return f"mutants: {killed} of {len(words)} killed, {survived} survived{errors}"


def failing_without(mutations: Sequence[Mutation]) -> str:
    """The first test that fails although nothing was changed: it would kill every mutant."""
    tests = sorted({file for mutation in mutations for file in mutation.tests})
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        done = run_tests(copy_checkout(Path(folder, "clean")), tests, seconds=None)
    if done is None or done.returncode == PASSED:
        return ""
    return _reason(done) or f"pytest ended with {done.returncode}"


class Mutant:
    """A copy of the checkout, in which one mutation after the other is tried."""

    def __init__(self, checkout: Path) -> None:
        self._checkout = checkout

    def attempt(self, mutation: Mutation) -> Outcome:
        """Run the tests of a mutation; the copy is mended again."""
        file = self._checkout / mutation.edit.file
        before = file.read_bytes() if file.exists() else b""
        try:
            mutation.edit.apply(self._checkout)
            return _judged(mutation, run_tests(self._checkout, mutation.tests))
        except MutationError as error:
            return Outcome(mutation, "error", str(error))
        finally:
            if before:
                file.write_bytes(before)


def attempt_all(mutations: Sequence[Mutation], jobs: int) -> Iterator[Outcome]:
    """Try mutations in so many copies at once; what became of each, in their order."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        free: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
        for number in range(jobs):
            free.put(Mutant(copy_checkout(Path(folder, str(number)))))

        def attempt(mutation: Mutation) -> Outcome:
            mutant = free.get()
            try:
                return mutant.attempt(mutation)
            finally:
                free.put(mutant)

        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(attempt, mutations)


def _judged(mutation: Mutation, done: subprocess.CompletedProcess[str] | None) -> Outcome:
    if done is None:
        return Outcome(mutation, "killed", f"its tests did not end in {SECONDS:.0f} s")
    last = (done.stdout.strip().splitlines() or [""])[-1]
    if done.returncode not in (PASSED, FAILED):
        return Outcome(mutation, "error", last)
    return Outcome(mutation, "survived" if done.returncode == PASSED else "killed", _reason(done))


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    return failed[0].split()[1] if failed else ""


def run_tests(
    checkout: Path, tests: Sequence[str], seconds: float | None = SECONDS
) -> subprocess.CompletedProcess[str] | None:
    """Run tests there until one fails; None if they do not end in time."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "no:xdist", "-m", "not lab", *tests]
    path = f"{checkout / 'lib'}{os.pathsep}{checkout}"
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        return subprocess.run(
            command,
            cwd=checkout,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
