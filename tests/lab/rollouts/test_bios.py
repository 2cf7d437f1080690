# SPDX-License-Identifier: Apache-2.0
"""A BIOS setting over a PoP of four makes: through BMCs, over real reboots, there and back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from lab import pop as lab
from tests.support.practice import FOUR, Practice, longer, needs_lab, practising

pytestmark = [*needs_lab, pytest.mark.long]


@pytest.fixture(scope="module")
def practice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Practice]:
    with practising(tmp_path_factory.mktemp("practice"), hosts=4, drops=True) as made:
        yield made


def of_all(practice: Practice, what: str) -> list[Any]:
    state = lab.status(practice.home)
    assert state is not None
    return [host[what] for host in state["hosts"]]


def boots_since(practice: Practice, began: list[int]) -> list[int]:
    return sorted(now - then for now, then in zip(of_all(practice, "boots"), began))


def snoop_modes(practice: Practice) -> set[str]:
    return {bmc["snoop_mode"] for bmc in of_all(practice, "bmc")}


def killed_after(practice: Practice, step: str, *words: str) -> None:
    """Run an action, and kill whoever conducts it as soon as that step has succeeded."""
    process = practice.start("run", *words, "--verbose")
    assert process.stderr is not None
    for line in process.stderr:
        if f" {step} " in line and "succeeded" in line:
            break
    process.kill()
    process.communicate(timeout=60)


def surged(practice: Practice, *words: str) -> str:
    """What an action says in the end, with twice the usual load for some seconds of the soak."""
    process = practice.start("run", *words, "--verbose")
    assert process.stderr is not None
    for line in process.stderr:
        if " begin_soak " in line:
            lab.inject(practice.home, "surge", "2")
        left = re.search(r"is in (\d+) s", line)
        if left and int(left.group(1)) <= 7:
            lab.heal(practice.home)
    return process.communicate(timeout=300)[0]


def test_home_snoop_is_promoted_in_a_surge_and_taken_back_though_killed(
    practice: Practice,
) -> None:
    before, lost = practice.fingerprints(), practice.lost()
    assert snoop_modes(practice) == {"early"}

    began = of_all(practice, "boots")
    said = surged(practice, "rollout_pop", "tuning=home_snoop", *FOUR)
    for held in practice.run("rollout_status", "state=held")["ids"]:  # as Practice.roll_out does
        assert practice.run("roll_back_pop", f"rollout={held}")["outcome"] == "rolled_back"
        began = of_all(practice, "boots")
        said = surged(practice, "rollout_pop", "tuning=home_snoop", *longer(FOUR))
    assert "improved: Test hosts dropped" in said
    (rollout,) = practice.run("rollout_status", "state=complete")["ids"]
    assert snoop_modes(practice) == {"home"}
    # Both groups rebooted once for the comparison, and the control group for its promotion.
    assert boots_since(practice, began) == [1, 1, 2, 2]

    again = practice.edgetune("run", "rollout_pop", "tuning=home_snoop", *FOUR)
    assert "nothing to do: every host of lab1 is as home_snoop wants it" in again[2]

    # Its BMC has no graceful restart.
    bmcs = dict(zip(practice.hosts, of_all(practice, "bmc")))
    (stays_up,) = (name for name, bmc in bmcs.items() if bmc["personality"] == "ami")
    practice.on(stays_up, "mount --bind /bin/true /usr/local/sbin/reboot")
    back = ("roll_back_pop", f"rollout={rollout}")
    killed_after(practice, "set_bios", *back)
    ended = practice.run(*back)
    assert (ended["exit"], ended["outcome"], ended["quarantined"]) == (0, "rolled_back", {})
    assert snoop_modes(practice) == {"early"}
    resets = {name: bmc["resets"] for name, bmc in zip(practice.hosts, of_all(practice, "bmc"))}
    shut_down = {stays_up: ["GracefulShutdown", "On"]}
    assert resets == {**dict.fromkeys(practice.hosts, []), **shut_down}
    assert boots_since(practice, began) == [2, 2, 3, 3]
    assert practice.fingerprints() == before
    assert practice.serving() == set(practice.hosts)
    assert practice.lost() == lost


def test_bmcs_that_only_say_yes_change_nothing_and_reboot_nobody(practice: Practice) -> None:
    lost, boots = practice.lost(), of_all(practice, "boots")
    for host in practice.hosts:
        lab.inject(practice.home, "bmc_ignores", host)
    done = practice.run("rollout_pop", "tuning=home_snoop", *FOUR)
    assert (done["exit"], done["outcome"]) == (3, "rolled_back"), done
    assert "the BMC took the change, but" in done["message"]
    # Nothing was pending, so nobody had to boot.
    assert of_all(practice, "boots") == boots
    lab.heal(practice.home)
    assert snoop_modes(practice) == {"early"}
    assert practice.serving() == set(practice.hosts)
    assert practice.lost() == lost
