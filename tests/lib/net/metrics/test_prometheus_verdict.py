# SPDX-License-Identifier: Apache-2.0
"""Hosts that are sampled by SSH and scraped by a real Prometheus get the same verdict by both."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from edgetune.base.documents.look import Look
from edgetune.base.documents.sample import Sample
from edgetune.base.documents.words import Decision, Verdict
from edgetune.base.errors import SourceError
from edgetune.net.metrics.sources.prometheus import Prometheus
from edgetune.report.steps.rollout_status import overview_text
from edgetune.rollout.evidence.soak import Soak, measure
from edgetune.rollout.guard.stalled import stale_samples
from edgetune.rollout.guard.watched import Watched
from edgetune.rollout.ownership.lease import as_owner
from edgetune.rollout.status.overview import Overview
from edgetune.rollout.status.present import Seen
from edgetune.rollout.steps.compare_groups import compare_groups
from edgetune.site.inventory import Metrics
from tests.support.builders import as_samples
from tests.support.real_prometheus import RealPrometheus, needs_prometheus, write_history
from tests.support.soaking import USUAL, Soaking

pytestmark = needs_prometheus

SWEPT, SCRAPED = 10, 5
"""Seconds between two sweeps by SSH, and between two scrapes, which begin at a time of their own on
each host."""
BOOTED = 2000.0


class BothMeasured(Soaking):
    """What each host counts shows in the store and in a history of Prometheus, whose clock is so
    many seconds ``ahead`` of the action runner's."""

    def __init__(self, folder: Path) -> None:
        self.history: dict[str, list[tuple[str, float, float]]] = {}
        self.swept: list[Sample] = []
        self.ahead = 0.0
        super().__init__(folder)

    def count(self, rates: Mapping[str, float], start: float, window: int) -> None:
        """For ten minutes; drops of each second are drawn."""
        dice = random.Random(self.seeds[window])
        rows = []
        for host, rate in rates.items():
            drops = [0, *accumulate(max(0, round(dice.gauss(rate, rate**0.5))) for _ in range(620))]
            began, boot = start - BOOTED, f"boot {window}"
            for second in range(0, 611, SWEPT):
                counters = {"listen_drops": drops[second], "rx_packets": 1000 * second}
                health = {"health_failed": 0.0, "health_p50_ms": 1.0}
                at = start + second
                own = {"host": host, "time": at, "boot_id": boot, "uptime": at - began}
                rows.append({**own, "counters": counters, "gauges": health})
            for second in range(dice.randrange(SCRAPED), 615, SCRAPED):
                told = {"drops": drops[second], "packets": 1000 * second}
                self._tell(host, start + second, told, boot, began)
        self.context.samples.add("lab1", as_samples(rows))
        self.swept += as_samples(rows)

    def _tell(self, host: str, at: float, told: Mapping[str, int], boot: str, began: float) -> None:
        own = f'host="{host}"'
        series = {
            f"node_boot_time_seconds{{{own}}}": began,
            f'edgetune_boot_info{{{own},boot_id="{boot}"}}': 1,
            f'node_network_receive_packets_total{{{own},device="eth0"}}': told["packets"],
            f"node_netstat_TcpExt_ListenDrops{{{own}}}": told["drops"],
        }
        for name, value in series.items():
            lines = self.history.setdefault(name.partition("{")[0], [])
            lines.append((name, value, at))

    def text(self) -> str:
        """The history in the OpenMetrics format."""
        parts = []
        for name, lines in self.history.items():
            told = (f"{series} {value} {at + self.ahead:.3f}" for series, value, at in lines)
            parts += [f"# TYPE {name} unknown", *told]
        return "\n".join([*parts, "# EOF", ""])

    def measured_by(self, url: str) -> None:
        """From now on counters come from Prometheus, and health from hosts."""
        pop, usual = self.context.inventory.pop("lab1"), Prometheus.fields
        fields = {name: its.default or "" for name, its in usual.items()}
        own = Metrics("prometheus", {**fields, "url": url, "matcher": 'host="{name}"'})
        both = replace(pop, metrics=own, more_metrics=(Metrics(),))
        self.context.inventory.pop = lambda name: both  # type: ignore[method-assign]
        self.context.samples.add("lab1", self.swept, 1)

    def judged(self) -> Look:
        """The look that decides, with a baseline of its own, and not written down."""
        opened = as_owner(self.context, self.rollout)
        opened.save_baseline(measure(opened)[0])
        look = Soak(opened).foreseen()
        assert look is not None
        return look


@pytest.fixture
def world(tmp_path: Path) -> Iterator[BothMeasured]:
    yield BothMeasured(tmp_path)


@pytest.fixture
def served(world: BothMeasured, tmp_path: Path) -> Iterator[Any]:
    """Begins a Prometheus with the history that there is."""
    begun: list[RealPrometheus] = []

    def begin() -> RealPrometheus:
        folder = tmp_path / "prometheus"
        folder.mkdir()
        write_history(folder, world.text())
        begun.append(RealPrometheus(folder))
        world.measured_by(begun[0].url)
        return begun[0]

    yield begin
    for each in begun:
        each.kill()


@pytest.mark.parametrize(
    ("ahead", "test", "verdict", "decision"),
    [
        (-5.0, 0.9, Verdict.IMPROVED, Decision.PROMOTE),
        (5.0, 9.0, Verdict.DEGRADED, Decision.ROLL_BACK),
        (0.0, USUAL, Verdict.NO_DIFFERENCE, Decision.HOLD),
    ],
)
def test_a_verdict_by_ssh_and_one_by_prometheus_agree_though_their_clocks_differ_a_little(
    world: BothMeasured,
    served: Any,
    ahead: float,
    test: float,
    verdict: Verdict,
    decision: Decision,
) -> None:
    world.ahead = ahead
    world.soak(test=test, began=700)
    by_ssh = world.judged()
    served()
    by_prometheus = world.judged()
    assert (by_ssh.verdict, by_ssh.decision) == (verdict, decision)
    assert (by_prometheus.verdict, by_prometheus.decision) == (verdict, decision)
    for one, other in zip(by_ssh.metrics, by_prometheus.metrics):
        assert one.metric == other.metric
        if one.metric == "listen_drops":
            assert other.ratio == pytest.approx(one.ratio, rel=0.03)
    facts = by_prometheus.block.facts if by_prometheus.block else None
    assert facts and not facts.flaws and len(facts.samples) == 8


def measured(world: BothMeasured) -> None:
    """A soak of an improvement, whose baseline is written down."""
    world.soak(test=0.9, began=700)
    opened = as_owner(world.context, world.rollout)
    opened.save_baseline(measure(opened)[0])


def test_a_prometheus_that_is_down_promotes_nothing_and_guard_and_status_see_it(
    world: BothMeasured, served: Any
) -> None:
    measured(world)
    # The store has samples of this minute, which are not asked for.
    world.count(dict.fromkeys(world.hosts_of("test"), 1.0), time.time() - 300, 1)
    running = served()
    running.kill()
    found = compare_groups(world.context, world.rollout)
    assert found["decision"] == "hold"
    assert f"prometheus of lab1 at {running.url}: does not answer" in found["message"]
    opened = as_owner(world.context, world.rollout)
    opened.head.created -= 7200
    opened.save()
    watched = Watched(world.context, opened.head, time.time(), {}, {}, "")
    stale = stale_samples(watched)
    assert stale and f"prometheus of lab1 at {running.url}: does not" in stale.payload["reason"]
    with pytest.raises(SourceError):
        world.context.samples.newest(["lab1"])
    seen = Seen(world.context, [opened.head], [], [], "", False)
    assert "When hosts were sampled is not known: prometheus of lab1" in overview_text(
        Overview(seen, ()), with_ended=False, lines=0
    )
