# SPDX-License-Identifier: Apache-2.0
"""What tuned hosts of a lab PoP carry beside untuned ones, by weights of its real HAProxy."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from lab.pop import balancer_state
from tests.support.practice import Practice, needs_lab, practising
from tests.support.waiting import wait_until

pytestmark = [*needs_lab, pytest.mark.long]

TUNING = "wider_accept_queue"
ON = ("pop=lab1", f"tuning={TUNING}", "most=0.3", "hold=12s", "alone=true", "seed=3")
BUILT = 14 / 10
"""Connections of a burst that a tuned and an untuned host of the lab carry."""


@pytest.fixture(scope="module")
def practice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Practice]:
    """A PoP of eight can do without a pair of its hosts; its tuning soaks, and nobody waits."""
    with practising(tmp_path_factory.mktemp("capacity"), hosts=8) as made:
        words = ("dry_run=false", "baseline=16", "soak=6h", "interval=4", "warmup=1")
        begun = made.run("rollout_pop", "pop=lab1", f"tuning={TUNING}", *words, "wait=false")
        assert begun["exit"] == 0, begun
        wait_until(
            lambda: made.run("measure_capacity", *ON)["exit"] == 0, "measurable: past warmup"
        )
        yield made


def weights(practice: Practice) -> dict[str, int]:
    """Those that HAProxy has, asked without edgetune."""
    return {name: own["weight"] for name, own in balancer_state(practice.home).items()}


@pytest.mark.quiet
def test_the_ratio_is_what_the_hosts_were_built_with_and_no_request_is_lost(
    practice: Practice,
) -> None:
    with practice.losing_nothing():
        shown = practice.run("measure_capacity", *ON, "pairs=2")
        assert "Nothing was changed." in shown["text"], shown["message"]
        assert {*weights(practice).values()} == {16}
        done = practice.run("measure_capacity", f"plan={shown['plan']}", "dry_run=false")
    print(done["text"])
    assert (done["exit"], done["stopped"]) == (0, ""), done
    assert done["ratio"]["bound"] == "exactly"
    assert done["ratio"]["ratio"] == pytest.approx(BUILT, rel=0.1), done["text"]
    assert {*weights(practice).values()} == {16}


def test_what_a_killed_controller_left_is_named_and_returned(practice: Practice) -> None:
    process = practice.start("run", "measure_capacity", *ON, "pairs=1", "dry_run=false")
    deadline = time.monotonic() + 120
    while {*weights(practice).values()} == {16}:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    time.sleep(5)
    lent = {name: own for name, own in weights(practice).items() if own != 16}
    assert len(lent) == 2
    status = practice.edgetune("status", "lab1")[1]
    assert all(f"{name} weighs {own}, not 16" in status for name, own in lent.items()), status
    rollout = practice.run("rollout_status", "pop=lab1")["rollouts"][0]["rollout"]
    told = practice.run("recover_rollout", f"rollout={rollout}")
    assert "weights returned: " in told["message"], told
    assert {*weights(practice).values()} == {16}
    assert practice.serving() == set(practice.hosts)
