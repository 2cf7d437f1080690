# SPDX-License-Identifier: Apache-2.0
"""Two HAProxies in front of the hosts of one PoP: rollouts drain in both, and one goes away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgetune.net.inventories.yaml import YamlInventory
from lab import pop as lab
from lab.pop.files import write_inventory
from lab.pop.layout import LOAD_BALANCER, SECOND_BALANCER, Layout, addresses, sites
from tests.support.practice import FOUR, Practice, needs_lab, practising
from tests.support.waiting import wait_until

# How many requests each HAProxy took from clients.
COUNTED = """
import socket, sys
for address in sys.argv[1:]:
    with socket.create_connection((address, 9999), 10) as asked:
        asked.sendall(b"show stat -1 1 -1\\n")
        lines = b"".join(iter(lambda: asked.recv(65536), b"")).decode().splitlines()
    print(max(int(line.split(",")[7] or 0) for line in lines if line.startswith("lab1,")))
"""


def test_the_inventory_of_such_a_lab_names_both(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.lab.mkdir()
    write_inventory(layout, sites(addresses(2), 1), both=True)
    own = YamlInventory(layout.inventory).pop("lab1").load_balancer
    both = [f"tcp://{LOAD_BALANCER}:9999", f"tcp://{SECOND_BALANCER}:9999"]
    assert own.fields["address"].split() == both


@pytest.mark.parametrize("more", [{"balancers": 3}, {"balancers": 2, "anycast": True}])
@needs_lab[0]
@needs_lab[1]
def test_a_lab_has_one_or_two(tmp_path: Path, more: dict[str, int]) -> None:
    with pytest.raises(lab.LabError, match="1 or 2 HAProxies"):
        lab.up(tmp_path, hosts=4, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def practice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Practice]:
    with practising(tmp_path_factory.mktemp("practice"), hosts=4, balancers=2) as made:
        yield made


def told_not_ready(practice: Practice) -> list[str]:
    """The hosts that are drained, by their own word: nothing comes from either any more."""
    marker = "test -e /var/lib/edgetune-not-ready && echo out || :"
    return [name for name, said in practice.on_all(marker).items() if said.strip()]


@needs_lab[0]
@needs_lab[1]
@pytest.mark.long
def test_a_rollout_there_and_back_over_one_that_goes_away_loses_no_request(
    practice: Practice,
) -> None:
    """It goes away for edgetune alone, as with a broken management network, while hosts are out."""
    before, lost = practice.fingerprints(), practice.lost()
    done = practice.roll_out("tuning=accept_queue", *FOUR)
    assert (done["exit"], done["outcome"]) == (0, "promoted"), done["text"]
    code, out, err = practice.edgetune(
        "lab", "exec", "python3", "-c", COUNTED, LOAD_BALANCER, SECOND_BALANCER
    )
    assert code == 0 and min(int(line) for line in out.split()) > 100, (out, err)
    back = practice.start("run", "roll_back_pop", f"rollout={done['rollout']}", "--json")
    wait_until(lambda: told_not_ready(practice), seconds=120.0)
    told = told_not_ready(practice)
    lab.balancer(practice.home, "mute", 2)
    text = "".join(back.communicate(timeout=practice.patience))
    assert back.returncode != 0 and "HAProxy does not answer" in text, text
    again = practice.run("roll_back_pop", f"rollout={done['rollout']}")
    assert again["exit"] != 0 and f"{SECOND_BALANCER}:9999" in again["message"], again
    for name in told:
        assert practice.on(name, "ls /var/lib/edgetune/tunings 2>/dev/null || :").strip() == ""
    assert practice.lost() == lost
    lab.heal(practice.home)
    back_at_last = practice.run("roll_back_pop", f"rollout={done['rollout']}")
    assert (back_at_last["exit"], back_at_last["outcome"]) == (0, "rolled_back"), back_at_last
    assert back_at_last["quarantined"] == {}
    assert practice.fingerprints() == before
    assert practice.serving() == set(practice.hosts)
    assert practice.lost() == lost
