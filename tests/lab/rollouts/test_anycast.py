# SPDX-License-Identifier: Apache-2.0
"""A PoP whose hosts announce its address by BIRD: rollouts drain by BGP, and what that saves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgetune.net.inventories.yaml import YamlInventory
from lab import pop as lab
from lab.pop.files import write_inventory
from lab.pop.layout import ANYCAST, LOAD_BALANCER, Layout, addresses, sites
from tests.support import ROOT
from tests.support.practice import FOUR, Practice, needing, practising
from tests.support.waiting import wait_until

pytestmark = [*needing(anycast=True), pytest.mark.long]


@pytest.fixture(scope="module")
def practice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Practice]:
    with practising(tmp_path_factory.mktemp("practice"), hosts=4, anycast=True) as made:
        yield made


def test_the_inventory_of_such_a_lab_drains_by_bird(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.lab.mkdir()
    write_inventory(layout, sites(addresses(2), 1), anycast=True)
    own = YamlInventory(layout.inventory).pop("lab1").load_balancer
    assert (own.driver, own.checks) == ("bird", "none")
    image = ROOT / "lab/pop/anycast_image/etc/bird/bird.conf"
    for name in own.fields["protocols"].split("/"):
        assert f"protocol static {name} {{" in image.read_text()
    assert ANYCAST in image.read_text() and LOAD_BALANCER in image.read_text()


@pytest.mark.parametrize("more", [{"pops": 2}, {"machines": 1}])
def test_an_anycast_pop_is_alone_and_of_namespaces(tmp_path: Path, more: dict[str, int]) -> None:
    with pytest.raises(lab.LabError, match="an anycast PoP is the only one of its lab"):
        lab.up(tmp_path, hosts=4, anycast=True, **more)  # type: ignore[arg-type]


def birdc(practice: Practice, host: str, *words: str) -> str:
    return str(lab.console(practice.home, host, ["birdc", *words]))


def test_a_rollout_drains_by_bgp_there_and_back_and_loses_no_request(practice: Practice) -> None:
    before, lost = practice.fingerprints(), practice.lost()
    done = practice.roll_out("tuning=accept_queue", *FOUR)
    assert (done["exit"], done["outcome"]) == (0, "promoted"), done["text"]
    assert practice.serving() == set(practice.hosts)
    back = practice.run("roll_back_pop", f"rollout={done['rollout']}")
    assert (back["exit"], back["outcome"], back["quarantined"]) == (0, "rolled_back", {})
    assert practice.fingerprints() == before
    assert practice.serving() == set(practice.hosts)
    assert practice.lost() == lost


def test_the_order_loses_nothing_and_a_withdrawal_alone_does(practice: Practice) -> None:
    """The second half shows that the first one could have been seen to fail."""
    lost = practice.lost()
    birdc(practice, "e000", "enable", "anycast_leaving")
    wait_until(lambda: "e000" not in practice.serving())
    wait_until(lambda: connections(practice, "e000") == 0)
    birdc(practice, "e000", "disable", "anycast")
    birdc(practice, "e000", "disable", "anycast_leaving")
    birdc(practice, "e000", "enable", "anycast")
    wait_until(lambda: practice.serving() == set(practice.hosts))
    assert practice.lost() == lost
    assert loses(practice, "e001", ("disable", "anycast"), ("enable", "anycast"))


def loses(practice: Practice, host: str, leave: tuple[str, str], back: tuple[str, str]) -> bool:
    """Whether requests are lost when a busy host leaves so; a moment may have no long one."""
    lost = practice.lost()
    for _ in range(5):
        wait_until(lambda: connections(practice, host) > 2)
        birdc(practice, host, *leave)
        time.sleep(5)
        birdc(practice, host, *back)
        wait_until(lambda: practice.serving() == set(practice.hosts))
        if practice.lost() > lost:
            return True
    return False


def connections(practice: Practice, host: str) -> int:
    """Of clients, by the host's own count."""
    rows = lab.console(practice.home, host, ["cat", "/proc/net/tcp"]).splitlines()[1:]
    return sum(row.split()[1].endswith(":0050") and row.split()[3] == "01" for row in rows)
