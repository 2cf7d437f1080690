# SPDX-License-Identifier: Apache-2.0
"""The agent reads what real hosts with FreeBSD printed: see tests/fixtures/freebsd/README.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgetune.hosts.agent.freebsd.interrupts import queues
from edgetune.hosts.agent.freebsd.network import carrying, gateways, interfaces
from edgetune.hosts.agent.freebsd.parameters import all_told
from edgetune.hosts.agent.freebsd.zones import Zone, zones
from edgetune.hosts.agent.host import Host
from tests.support import ROOT
from tests.support.agent_root import setting
from tests.support.cases import cases
from tests.support.freebsd import FreeBsd, freebsd_host

RECORDED = ROOT / "tests/fixtures/freebsd"


def text(name: str) -> str:
    return (RECORDED / name).read_text(encoding="utf-8")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[FreeBsd]:
    with freebsd_host(tmp_path / "host") as own:
        yield own


def agent(host: FreeBsd) -> Host:
    return Host(str(host.path))


def told(host: FreeBsd, call: str, name: str) -> Host:
    """The agent's view of a host whose program says what was recorded."""
    host.fails[call] = (0, text(name), "")
    return agent(host)


def counted(host: FreeBsd) -> dict[str, Any]:
    counters: dict[str, Any] = host.ask("sample", health_requests=0)["counters"]
    return counters


@pytest.mark.parametrize("case", cases(Path(__file__).parent / "freebsd_cards.yaml"))
def test_cards_with_all_that_they_tell(host: FreeBsd, case: dict[str, Any]) -> None:
    own = told(host, "ifconfig -a", case["file"])
    (card,) = carrying(own)
    assert [card.name, card.up, card.speed, card.addresses] == case["card"]
    loopback = [[*each.addresses, each.up] for each in interfaces(own) if each.name == "lo0"]
    assert loopback in ([], [["127.0.0.1", "::1", "fe80::1", True]])


@pytest.mark.parametrize(
    ("file", "numbers"),
    [
        ("ohai/netstat-ibdn.txt", [579, 46746, 210, 0]),
        ("ohai/netstat-ibdn-2.txt", [3734, 15901987, 1740, 0]),
        ("jc/netstat-ib.txt", [None] * 4),  # It has no column of drops.
    ],
)
def test_what_interfaces_counted(host: FreeBsd, file: str, numbers: list[int | None]) -> None:
    """Columns are as wide as addresses of IPv6, and a second lo has its own."""
    told(host, "netstat -ibdn", file)
    names = ("rx_packets", "rx_bytes", "tx_packets", "rx_dropped")
    assert [counted(host).get(name) for name in names] == numbers


def test_the_gateway(host: FreeBsd) -> None:
    host.fails["route -n get -inet6 default"] = (1, "", "route: route has not been found\n")
    own = told(host, "route -n get -inet default", "ohai/route-n-get-default.txt")
    assert list(gateways(own)) == ["140.211.10.65"]


def test_connections(host: FreeBsd) -> None:
    """Beside sockets of UDP and of the host itself."""
    told(host, "netstat -anW", "jc/netstat-an.txt")
    assert host.ask("sessions", ports=[22])["sessions"] == 1
    assert host.ask("sessions", ports=[25, 443])["sessions"] == 0


def test_parameters(host: FreeBsd) -> None:
    """One of several lines hides none that follows, and passes for none of its own lines."""
    told(host, "sysctl -i", "jc/sysctl-a-excerpt.txt")
    names = ("kern.osrelease", "net.inet.tcp.functions_default", "freebsd", "dev.em.0.%location")
    assert all_told(agent(host), names) == {
        "kern.osrelease": "12.1-RELEASE",
        "net.inet.tcp.functions_default": "freebsd",
        "dev.em.0.%location": r"slot=1 function=0 dbsf=pci0:2:1:0 handle=\_SB_.PCI0.P2P0.S2F0",
    }
    facts, sample = host.ask("facts"), host.ask("sample", health_requests=0)
    assert (facts["hostname"], facts["os"]["version"]) == ("freebsd", "12.1")
    assert facts["cpus"]["vendor"] == "GenuineIntel" and facts["cpus"]["count"] == 1
    assert facts["memory"]["total_kb"] == 2107092992 // 1024
    assert sample["counters"]["cpu_busy_ms"] == (1306 + 20708 + 3886) * 1000 // 127
    assert sample["gauges"]["memory_available_kb"] == (467629 + 3584) * 4
    assert sample["gauges"]["load1"] == 0.33


def test_the_tcp_stacks_of_a_kernel(host: FreeBsd) -> None:
    table = text("jc/sysctl-a-excerpt.txt").partition("functions_available: ")[2]
    table = table.partition("net.inet")[0]
    host.fails["sysctl -n net.inet.tcp.functions_available"] = (0, table, "")
    row = host.plan(setting("tcp.stack", {}, "rack"))[0]
    assert str(row["reason"]).startswith("the kernel has the TCP stacks freebsd: load the module")


def test_interrupts_of_cards(host: FreeBsd) -> None:
    """Of releases before iflib, whose queues are of both sides; and both ports of a Chelsio."""
    told(host, "vmstat -ai", "bsdrp/vmstat-i.txt")
    assert queues(agent(host), "igb1") == []
    for port in range(2):
        host.tell(f"dev.cxl.{port}.%parent", "t5nex0", "fixed")
        host.tell(f"dev.cxl.{port}.%location", f"port={port}", "fixed")
    host.machine.boot()
    first, second = (queues(agent(host), name) for name in ("cxl0", "cxl1"))
    assert [own.irq for own in first] == list(range(284, 292))
    assert [own.irq for own in second] == list(range(294, 302))
    assert (first[7].name, first[7].number, first[7].side) == ("cxl0:rxq7", 7, "rx")
    assert queues(agent(host), "cxl2") == [], "nobody tells its port"


def test_interrupts_of_iflib(host: FreeBsd) -> None:
    told(host, "vmstat -ai", "intel/vmstat-ixl.txt")
    assert [(own.irq, own.name) for own in queues(agent(host), "ixl0")] == [
        (268 + number, f"ixl0:rxq{number}") for number in range(8)
    ]


def test_what_a_card_of_chelsio_dropped(host: FreeBsd) -> None:
    """More than 32 bits; and what was published without its head counts for nothing."""
    card = text("jc/ifconfig-cxl3.txt").replace("cxl3:", "cxl0:")
    host.fails["ifconfig -a"] = (0, card, "")
    told(host, "sysctl -i dev.cxl", "bsdrp/sysctl-cxl-stats.txt")
    assert "rx_overruns" not in counted(host)
    stats = text("bsdrp/sysctl-cxl-stats.txt")
    host.fails["sysctl -i dev.cxl"] = (0, f"dev.cxl.0.stats.rx_ovflow3: 0\n{stats}", "")
    assert counted(host)["rx_overruns"] == 7301719197


def test_zones_of_network_buffers(host: FreeBsd) -> None:
    """A number may follow its comma at once, and is larger than 32 bits."""
    told(host, "vmstat -z", "bsdrp/vmstat-z-mbuf.txt")
    known = zones(agent(host))
    assert list(known)[:3] == ["mbuf_packet", "mbuf", "mbuf_cluster"] and len(known) == 6
    assert counted(host)["mbuf_waits"] == 0
    assert known["mbuf_cluster"] == Zone(limit=4084056, used=9614, failed=0, slept=0)
