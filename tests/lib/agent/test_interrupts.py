# SPDX-License-Identifier: Apache-2.0
"""Which interrupts of a card are those of its queues, as drivers name and kernels tell them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from edgetune.agent.host import Host
from edgetune.agent.interrupts import find_interrupts, interrupts_of, queue_interrupts
from edgetune.agent.kinds.cpu_service_affinity import busy_cpus
from edgetune.agent.kinds.nic_irq_affinity import NicIrqAffinity
from edgetune.agent.kinds.nic_xps import NicXps
from edgetune.agent.protocol import Unsupported
from edgetune.agent.topology import cpus_that_serve
from edgetune.base.files import load_yaml
from tests.support import FIXTURES
from tests.support.cases import cases

CARDS = load_yaml(FIXTURES / "interrupts/cards.yaml")
NET = "sys/class/net"
LINE = "{0}:          7          0  IR-PCI-MSIX-0000:03:00.0  {0}-edge      {1}\n"


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def install(root: Path, card: Mapping[str, Any]) -> Host:
    """A host with one card; no program runs."""
    lines = card.get("lines") or "".join(map(LINE.format, range(40, 99), card["names"]))
    write(root, "proc/interrupts", f"           CPU0       CPU1\n{lines}")
    device = f"sys/devices/pci0/{card.get('device', '0000:03:00.0')}"
    (root / device).mkdir(parents=True)
    (root / NET / card["interface"]).mkdir(parents=True)
    (root / NET / card["interface"] / "device").symlink_to(root / device)
    for name in [card["interface"], *card.get("siblings", ())]:
        write(root, f"{device}/net/{name}/mtu", "1500\n")
    for side in ("rx", "tx"):
        for queue in range(card[side]):
            write(root, f"{NET}/{card['interface']}/queues/{side}-{queue}/{side}ps_cpus", "0\n")
    of_device = f"{Path(device).parent if 'virtio' in device else device}/msi_irqs"
    for line in lines.splitlines():
        number = line.partition(":")[0].strip()
        write(root, f"proc/irq/{number}/smp_affinity_list", "0-1\n")
        if card.get("msi_irqs", True):
            write(root, f"{of_device}/{number}", "msix\n")
    # Of another card, which nothing of the first one may take for its own.
    text = (root / "proc/interrupts").read_text() + LINE.format(900, "lan7-TxRx-0")
    write(root, "proc/interrupts", text)
    return Host(str(root))


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card["card"])
def test_each_driver_names_the_interrupts_of_its_queues(
    tmp_path: Path, card: dict[str, Any]
) -> None:
    found = interrupts_of(install(tmp_path, card), card["interface"])
    last = max((queue for own in found.queues for queue in own.queues), default=-1)
    queues = [
        [own.name for own in found.queues if queue in own.queues] for queue in range(last + 1)
    ]
    assert queues == card["queues"]
    assert sorted(found.names.unknown) == card.get("unknown", [])
    assert found.names.numbered == card.get("numbered", True)


def named(start: str) -> dict[str, Any]:
    """The card that is called so."""
    return next(card for card in CARDS if card["card"].startswith(start))


UNKNOWN = named("a driver that nobody knows")


def assert_none(root: Path, card: Mapping[str, Any], files: Mapping[str, str], why: str) -> None:
    host = install(root, card)
    for name, text in files.items():
        write(root, name, text)
    (root / NET / "eth0/device/subsystem").symlink_to("/sys/bus/vmbus")
    with pytest.raises(Unsupported) as error:
        queue_interrupts(host, "eth0")
    assert str(error.value) == why


@pytest.mark.parametrize("case", cases(Path(__file__).with_name("interrupts.yaml")))
def test_why_a_card_has_no_interrupts_is_said(tmp_path: Path, case: dict[str, Any]) -> None:
    card, why = {**UNKNOWN, **case.get("card", {})}, case["why"]
    says = f"eth0 has no interrupts of its queues: {why}"
    assert_none(tmp_path, card, case.get("files", {}), says)


def test_a_card_whose_interrupts_are_known_in_part_says_so(tmp_path: Path) -> None:
    card = {**UNKNOWN, "names": ["eth0-rx-0", "eth0-tx-0", "eth0-foo1"]}
    says = "the interrupts of eth0 are known in part: receive queue 1 has none, and no name tells "
    assert_none(tmp_path, card, {}, f"{says}what raises eth0-foo1")


def test_a_legacy_line_of_its_own_serves_all_queues(tmp_path: Path) -> None:
    host = install(tmp_path, {**UNKNOWN, "msi_irqs": False})
    write(tmp_path, "proc/interrupts", " CPU0\n19:       7   IO-APIC  19-fasteoi   eth0\n")
    assert [own.number for own in queue_interrupts(host, "eth0")] == ["19"]


def test_what_a_bridge_above_a_card_raises_is_not_the_cards(tmp_path: Path) -> None:
    host = install(tmp_path, {**UNKNOWN, "msi_irqs": False})
    write(tmp_path, "sys/devices/pci0/msi_irqs/24", "msi\n")
    write(tmp_path, "proc/interrupts", " CPU0\n24:       7   PCI-MSI  24-edge   pcie-rx-0\n")
    assert not find_interrupts(host, "eth0")


def test_an_interface_without_a_device_has_none_of_its_machine(tmp_path: Path) -> None:
    host = install(tmp_path, CARDS[4])
    (tmp_path / NET / "eth2/device").unlink()
    assert not find_interrupts(host, "eth2")
    with pytest.raises(Unsupported, match="it is virtual, without a device"):
        queue_interrupts(host, "eth2")


def test_no_service_keeps_off_interrupts_that_nobody_knows(tmp_path: Path) -> None:
    host = install(tmp_path, UNKNOWN)
    write(tmp_path, f"{NET}/eth0/statistics/rx_packets", "7\n")
    with pytest.raises(Unsupported, match="no name tells what raises eth0, eth0-foo0"):
        busy_cpus(host, [])


def test_no_mask_is_made_of_event_queues_that_are_shared(tmp_path: Path) -> None:
    host = install(tmp_path, next(card for card in CARDS if not card.get("numbered", True)))
    with pytest.raises(Unsupported, match="nobody knows which queue of eth1 raises which"):
        NicXps(host).derived({"interface": "eth1"}, ["tx-0"], [])


def test_queues_that_share_an_interrupt_are_served_by_its_cpu(tmp_path: Path) -> None:
    host = install(tmp_path, named("ice 1.16"))
    for number, cpu in ((40, 0), (41, 1)):
        write(tmp_path, f"proc/irq/{number}/smp_affinity_list", f"{cpu}\n")
    write(tmp_path, "sys/devices/system/cpu/online", "0-1\n")
    assert cpus_that_serve(host, "ens2f1", []) == {0: {0}, 1: {0}, 2: {1}, 3: {1}}


def test_interrupts_come_back_that_are_known_no_more(tmp_path: Path) -> None:
    """An agent of another version may have taken others for those of queues."""
    host = install(tmp_path, UNKNOWN)
    kind = NicIrqAffinity(host)
    kind.restore({"interface": "eth0"}, {"eth0-foo0": "1\n", "gone-0": "1\n"})
    assert (tmp_path / "proc/irq/40/smp_affinity_list").read_text() == "1\n"
    assert (tmp_path / "proc/irq/41/smp_affinity_list").read_text() == "0-1\n"
    was = "eth0-foo0: 1, eth0-foo1: 0-1"
    assert kind.is_back({"interface": "eth0"}, None, was)
    assert not kind.is_back({"interface": "eth0"}, None, was.replace("foo0: 1", "foo0: 0"))
    assert not kind.is_back({"interface": "eth0"}, None, "each 0-1")
    assert not kind.is_back({"interface": "eth0"}, None, None)


def test_interrupts_are_back_where_fewer_were_told_of(tmp_path: Path) -> None:
    """Agents before 0.11 left out the last queue of tg3."""
    host = install(tmp_path, named("tg3, which counts from 1"))
    kind, target = NicIrqAffinity(host), {"interface": "eth0"}
    write(tmp_path, "proc/irq/41/smp_affinity_list", "1\n")
    was = "eth0-rx-1: 1, eth0-rx-2: 0-1, eth0-rx-3: 0-1"
    assert kind.runtime(target) != was
    assert kind.is_back(target, kind.runtime(target), was)
