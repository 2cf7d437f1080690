# SPDX-License-Identifier: Apache-2.0
"""Lab hosts with an application behind nginx: a tail of requests that a full queue makes, and what
hosts carry that are at the end of their CPU."""

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

TAIL, LEAN = "tiny_application_queue", "leaner_application"
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


def test_a_tail_of_requests_is_found_that_health_checks_miss(practice: Practice) -> None:
    """Of each host a p99 needs 2,000 requests, which are those of a minute."""
    before, words = practice.fingerprints(), ("baseline=72", "soak=80", "interval=4", "warmup=1")
    with practice.losing_nothing():
        real = ("pop=lab1", "dry_run=false", "wait=true")
        done = practice.run("rollout_pop", f"tuning={TAIL}", *real, *words)
    found = (done["exit"], done["outcome"], done["verdict"])
    assert found == (3, "rolled_back", "degraded"), done["text"]
    assert practice.fingerprints() == before
    record = read_rollout(Context(practice.config), done["rollout"])
    look = record.look(record.head.looks - 1)
    effects = {each.metric: each for each in look.metrics}
    tail = effects["health_p99"]
    print({name: (own.ratio, own.p_worse, own.levels) for name, own in effects.items()})
    # The kernel sends a SYN again after a second.
    assert tail.test_after > 1000 > 3 * max(tail.test_before, tail.control_before)  # type: ignore[operator,type-var]
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
