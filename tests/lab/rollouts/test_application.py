# SPDX-License-Identifier: Apache-2.0
"""Lab hosts with an application behind nginx: tails of requests that a full queue, stolen CPU and a
slow disk make, and what hosts carry that are at the end of their CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgetune.rollout.context import Context
from edgetune.rollout.record.rollout import read_rollout
from lab import pop as lab
from tests.support.practice import Practice, needs_lab, practising
from tests.support.waiting import wait_until

pytestmark = [*needs_lab, pytest.mark.long]

LEAN = "leaner_application"
TAILS = {"tiny_application_queue": 1000, "stolen_cpu": 280, "slow_disk": 400}
"""By tuning, the least of the p99 in ms. The kernel sends a SYN again after a second; a burst of
stolen CPU lasts 500 ms, and few requests wait for all of it; a read takes 400 ms."""
BUILT = 900 / 600
"""CPU time of a request, untuned and tuned: etc/application.conf, and the tuning."""
LIMIT = 60
"""In ms: a request takes 18 ms or 12 ms; a host that is over its limit has a queue of ten."""
ON = (f"tuning={LEAN}", "most=0.45", "rungs=20", "hold=8s", "pairs=1", f"limit={LIMIT}")


@pytest.fixture(scope="module")
def practice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Practice]:
    """Eight hosts can be split in 70 ways."""
    with practising(tmp_path_factory.mktemp("application"), hosts=8, application=True) as made:
        yield made


def test_machines_have_no_application(tmp_path: Path) -> None:
    with pytest.raises(lab.LabError, match="machines have no application behind nginx"):
        lab.up(tmp_path, hosts=2, machines=1, application=True)


@pytest.mark.parametrize("cause", ["steal", "slow_disk"])
def test_a_cause_of_a_tail_lasts_until_it_is_healed(practice: Practice, cause: str) -> None:
    ask = "curl -s -o /dev/null -w '%{time_total}' http://127.0.0.1/application"
    lab.inject(practice.home, cause, "e001")
    assert lab.status(practice.home)["faults"][cause] == ["e001"]  # type: ignore[index]
    wait_until(lambda: float(practice.on("e001", ask)) > 0.3, "a request that waits")
    assert float(practice.on("e001", ask.replace("application", "health"))) < 0.3
    lab.heal(practice.home)
    assert lab.status(practice.home)["faults"][cause] == []  # type: ignore[index]
    assert practice.on("e001", "ls /run/application.d") == ""


@pytest.mark.parametrize("tuning", TAILS)
def test_a_tail_of_requests_is_found_that_health_checks_miss(
    practice: Practice, tuning: str
) -> None:
    """Of each host a p99 needs 2,000 requests, which are those of a minute."""
    before, words = practice.fingerprints(), ("baseline=72", "soak=80", "interval=4", "warmup=1")
    with practice.losing_nothing():
        real = ("pop=lab1", "dry_run=false", "wait=true")
        done = practice.run("rollout_pop", f"tuning={tuning}", *real, *words)
    found = (done["exit"], done["outcome"], done["verdict"])
    assert found == (3, "rolled_back", "degraded"), done
    assert practice.fingerprints() == before
    record = read_rollout(Context(practice.config), done["rollout"])
    look = record.look(record.head.looks - 1)
    effects = {each.metric: each for each in look.metrics}
    tail = effects["health_p99"]
    print({name: (own.ratio, own.p_worse, own.levels) for name, own in effects.items()})
    before_all = max(tail.test_before, tail.control_before)  # type: ignore[type-var]
    assert tail.test_after > TAILS[tuning] > before_all  # type: ignore[operator]
    assert effects["health_p50"].ratio == pytest.approx(1, abs=0.25)
    assert tail.p_worse == pytest.approx(1 / 70) and "99th percentile" in look.reason
    for name in ("health_slowest", "health_failed"):
        assert (effects[name].p_worse or 0) > 1 / 70, effects[name]


@pytest.mark.quiet
def test_the_ratio_of_cpu_bound_hosts_is_what_they_were_built_with(practice: Practice) -> None:
    words = ("dry_run=false", "baseline=16", "soak=6h", "wait=false", "interval=2", "warmup=1")
    begun = practice.run("rollout_pop", "pop=lab1", f"tuning={LEAN}", *words)
    assert begun["exit"] == 0, begun
    asked = ("pop=lab1", *ON, "alone=true", "seed=3")
    wait_until(lambda: practice.run("measure_capacity", *asked)["exit"] == 0, "past warmup")
    with practice.losing_nothing():
        done = practice.run("measure_capacity", *asked, "dry_run=false")
    print(done["text"])
    assert (done["exit"], done["stopped"]) == (0, ""), done
    assert done["ratio"]["bound"] == "exactly"
    assert done["ratio"]["ratio"] == pytest.approx(BUILT, rel=0.1), done["text"]
