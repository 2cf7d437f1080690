# SPDX-License-Identifier: Apache-2.0
"""How bench.judge is carried out: the same figures in any order, and what they mean."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.judge import __main__ as program
from bench.judge import figures, large, peers, targets, trials
from bench.judge.articles import ARTICLES
from bench.judge.fleets import FLEETS
from bench.judge.parts import Parts
from bench.judge.scenarios import Replicate
from bench.judge.trials import Sizes
from tests.support import ROOT
from tests.support.waiting import wait_until

TINY = Sizes(null=6, effect=4, slow=3, promise=1, fleet=1)


class Steady:
    """Rolls back at the second look if test hosts dropped twice as much as the others."""

    name = "steady"

    def decide(self, replicate: Replicate, looks: Any) -> int | None:
        return looks[1] if self._ratio(replicate) > 1.4 else None

    def improved(self, replicate: Replicate, looks: Any) -> bool:
        return self._ratio(replicate) < 0.8

    def compare(self, replicate: Replicate) -> tuple[float, float, float, str]:
        return 0.31, 0.3, 0.33, "improved"

    def _ratio(self, replicate: Replicate) -> float:
        after, test = replicate.metrics[0].after, replicate.test
        return float((np.nansum(after[test]) + 1) / (np.nansum(after[~test]) + 1))


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> Steady:
    judge = Steady()
    monkeypatch.setattr(trials, "ours", lambda: judge)
    return judge


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "QUICK", TINY)
    monkeypatch.setattr(program, "FULL", TINY)
    cost = {"hosts": 5000.0, "draws": 10000.0, "seconds": 1.0, "megabytes": 300.0}
    monkeypatch.setattr(large, "measure", lambda: cost)


def _tenfold(item: tuple[int, str]) -> dict[str, Any]:
    number, name = item
    if name == "interrupted":
        raise KeyboardInterrupt
    return {"found": 10 * number, "least": 0.1, "none": None}


def test_an_interrupted_run_goes_on_with_what_is_not_done(tmp_path: Path) -> None:
    log = tmp_path / "parts.jsonl"
    items = [(1, "a"), (2, "b"), (3, "interrupted"), (4, "c")]
    with pytest.raises(KeyboardInterrupt):
        list(Parts(log).each(_tenfold, items, 1))
    log.write_text(log.read_text() + '{"program": "cut of')
    again: list[Any] = []
    items[2] = (3, "d")
    found = list(Parts(log).each(lambda item: again.append(item) or _tenfold(item), items, 1))
    assert found == [_tenfold(item) for item in items]
    assert again == items[2:]
    assert list(Parts(log).each(_never, items, 1)) == found


def _never(item: Any) -> Any:
    raise AssertionError(item)


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [(0, 300, 0, 0.01264), (5, 100, 0.02154, 0.11175), (300, 300, 0.98736, 1)],
)
def test_wilsons_interval(count: int, of: int, low: float, high: float) -> None:
    assert figures.wilson(count, of) == pytest.approx((low, high), abs=1e-5)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.usefixtures("tiny", "steady")
def test_the_program_prints_its_tables_and_writes_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "figures.json"
    arguments = ["--jobs", "1", "--only", "few,full", "--json", str(target)]
    assert program.main([*arguments, "--quick"]) == 0
    printed = capsys.readouterr().out
    document = json.loads(target.read_text())
    assert (document["benchmark"], document["quick"], document["seed"]) == ("judge", True, 1)
    methods = {"steady", *(peer.name for peer in peers.installed()[0])}
    for key in ("false_rollbacks", "power", "wrong_direction", "cpu"):
        variants = {variant.name for variant in trials.variants()}
        assert {row["method"] for row in document[key]} - variants == methods
    assert {row["effect"] for row in document["power"]} == {
        "x1.25",
        "x1.5",
        "x2",
        "x1.5 from 120 min on",
    }
    assert {row["fleet"] for row in document["fleets"]} == set(FLEETS)
    assert {row["article"] for row in document["articles"]} == set(ARTICLES)
    assert not all(row["reached"] for row in document["targets"])
    for title in (
        "False rollbacks",
        "full: power",
        "few: power",
        "Improvements seen",
        "Fleets",
        "Targets",
    ):
        assert title in printed
    assert "| too few to tell |" in printed
    assert [row["row"] for row in document["missed"] if row["table"] == "articles"] == ["NIC week"]
    assert "misses the truth" in printed
    # The same figures once more: without --quick a missed target is the exit status.
    monkeypatch.setattr(program, "run", lambda *given: document)
    assert program.main(arguments) == 1


@pytest.mark.parametrize("name", ARTICLES)
def test_an_article_has_its_ratio_of_ratios_in_it(name: str) -> None:
    make, truth = ARTICLES[name]
    replicate = make(np.random.default_rng(1))
    drops, test = replicate.metrics[0], replicate.test
    change = np.log(drops.after.mean(axis=1)) - np.log(drops.before.mean(axis=1))
    found = math.exp(change[test].mean() - change[~test].mean())
    assert found == pytest.approx(truth, rel=0.1)


@pytest.mark.processes
def test_an_interrupt_ends_all_processes() -> None:
    """As a terminal does it: all of them are told, and only one has something to say."""
    command = [sys.executable, "-m", "bench.judge", "--only", "full", "--seed", "7"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "lib"), str(ROOT)])}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        children = _wait_for_children(process.pid, 3)
        assert all(map(_ignores_interrupts, children))
        _interrupt(process)
        assert process.wait(60) == 130
        assert process.stderr and process.stderr.read() == b""
    wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))


def _ignores_interrupts(child: str) -> bool:
    status = Path(f"/proc/{child}/status").read_text()
    ignored = next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn"))
    return bool(int(ignored, 16) >> (signal.SIGINT - 1) & 1)


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """Once, when it is heard: it is not while processes are started, and a second one would come
    in the middle of what follows the first."""
    wait_until(lambda: not _ignores_interrupts(str(process.pid)))
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)


def _wait_for_children(parent: int, count: int) -> list[str]:
    """Its processes, once there are so many: two that judge, and the tracker of resources."""
    listed = Path(f"/proc/{parent}/task/{parent}/children")
    wait_until(lambda: len(listed.read_text().split()) >= count)
    return listed.read_text().split()


def test_both_articles_are_judged_as_they_were_told() -> None:
    own = trials.ours()
    assert own is not None
    for row in program.judge_articles(own, 1):
        assert row["verdict"] == "improved", row
        assert abs(row["ratio"] / row["truth"] - 1) <= targets.ARTICLE, row
