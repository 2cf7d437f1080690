# SPDX-License-Identifier: Apache-2.0
"""Whole rollouts over a PoP of two hosts in namespaces and two virtual machines, under load.

`make test-machines` runs these; most of the time goes into boots of machines.
"""

from __future__ import annotations

from lab import pop
from tests.support.practice import Practice, needs_machines

pytestmark = needs_machines
# One host against one in each of two strata can be drawn in four ways. An SSH session with a
# machine takes seconds.
TIMES = ("baseline=60", "soak=120", "interval=15", "warmup=5")
ALPHAS = ("alpha_benefit=0.3", "alpha_harm=0.3")
MIXED = ("pop=lab1", *TIMES, *ALPHAS)
REAL = (*MIXED, "dry_run=false", "wait=true")


def test_each_kind_of_host_is_a_stratum(practice: Practice) -> None:
    code, out, err = practice.edgetune("run", "rollout_pop", "tuning=accept_queue", *MIXED)
    assert code == 0, err
    drawn = {line.strip() for line in out.splitlines() if ": test e" in line}
    assert len(drawn & {"lab: test e000; control e001", "lab: test e001; control e000"}) == 1, out
    assert len(drawn & {"qemu: test e002; control e003", "qemu: test e003; control e002"}) == 1, out


def test_a_tuning_that_helps_is_promoted_on_both_kinds_of_hosts(practice: Practice) -> None:
    before, booted = practice.fingerprints(), pop.boots(practice.home)
    with practice.losing_nothing():
        done = practice.run("rollout_pop", "tuning=accept_queue", *REAL)
    found = (done["exit"], done["outcome"], done["verdict"])
    assert found == (0, "promoted", "improved"), done["text"]
    assert practice.somaxconn() == {"4096"}
    assert all(count > booted[name] for name, count in pop.boots(practice.home).items())
    with practice.losing_nothing():
        back = practice.run("roll_back_pop", f"rollout={done['rollout']}")
    assert (back["exit"], back["outcome"], back["quarantined"]) == (0, "rolled_back", {})
    assert practice.fingerprints() == before


def test_a_tuning_that_hurts_is_taken_back_from_both_kinds_of_hosts(practice: Practice) -> None:
    before = practice.fingerprints()
    with practice.losing_nothing():
        done = practice.run("rollout_pop", "tuning=tiny_accept_queue", *REAL)
    found = (done["exit"], done["outcome"], done["verdict"])
    assert found == (3, "rolled_back", "degraded"), done["text"]
    assert practice.fingerprints() == before
