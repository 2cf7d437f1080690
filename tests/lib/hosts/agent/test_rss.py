# SPDX-License-Identifier: Apache-2.0
"""How a network card spreads packets over its queues, on the cards of several drivers.

What each card takes and refuses is in ``cards_take.yaml`` and ``cards_refuse.yaml``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetune.documents.reading import encoded
from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.kinds.nic_rss import NicRss
from edgetune.hosts.agent.kinds.rss_table import can_be_written, spread, words_for
from edgetune.hosts.agent.kinds.rss_text import hashed_fields
from edgetune.rendering import misfits, render
from edgetune.tuning import load_tuning
from tests.support import ROOT
from tests.support.agent_nic import CARDS, Card, NicHost, make_card, steer
from tests.support.agent_root import setting

ETH0 = {"interface": "eth0"}
RSS_CARDS = [make for make in CARDS if make.__name__ != "virtio"]
each_card = pytest.mark.parametrize("card", [make.__name__ for make in RSS_CARDS])


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NicHost:
    return NicHost(tmp_path / "host", patch=monkeypatch)


def rss(only: str | None = None, **value: int | str) -> dict[str, Any]:
    return setting("nic.rss", ETH0, value, only=only)


def channels(only: str | None = None, **value: int) -> dict[str, Any]:
    return setting("nic.channels", ETH0, value, only=only)


def even(card: Card, queues: int) -> list[int]:
    """The table of a card, spread over its first queues."""
    return [entry % queues for entry in range(len(card.rss.table))]


@each_card
def test_packets_are_spread_over_fewer_queues_and_as_before(host: NicHost, card: str) -> None:
    own = host.insert(card)
    steer(host)
    had, size = own.state, len(own.rss.table)
    assert host.ask("facts")["nics"]["eth0"]["rss"] == {"queues": own.rings, "table_size": size}
    row = host.plan(rss(equal=1))[0]
    assert (row["status"], row["runtime"]) == ("change", {"equal": own.rings})
    assert host.plan(rss(equal=own.rings))[0]["reason"] == "would be lost at the next boot"
    with host.applied(rss(equal=1)):
        assert own.rss.table == even(own, 1) and own.changes == ["-X equal 1"]
        assert host.ask("facts")["nics"]["eth0"]["rss"] == {"queues": 1, "table_size": size}
    assert own.changes == ["-X equal 1", "-X default"]
    assert own.state == had and not own.rss.configured


@each_card
def test_a_table_that_was_set_outlives_everything_that_resets_it(host: NicHost, card: str) -> None:
    own = host.insert(card)
    host.apply(rss(equal=1), tuning="a")
    had = own.state
    adaptive = {"adaptive-rx": "off"} if "adaptive-rx" in own.coalesce else {}
    others = [
        channels(combined=own.most_channels["combined"]),
        setting("nic.ring", ETH0, {"rx": own.most_ring["rx"]}),
        setting("nic.features", ETH0, {"generic-receive-offload": "off"}),
        setting("nic.coalesce", ETH0, {**adaptive, "rx-usecs": 70}),
    ]
    for number, other in enumerate(others):
        host.apply(other, tuning=f"b{number}")
        assert own.rss.table == even(own, 1)
    assert host.verifies(rss(equal=1), tuning="a")
    for number in reversed(range(len(others))):
        host.restore(f"b{number}")
        assert own.rss.table == even(own, 1)
    assert own.state == had


STALE = (
    "virtio_net of Linux 6.1.0 would send packets of eth0 to queues that are gone, as its "
    "indirection table does not follow the queues before Linux 6.12"
)


@pytest.mark.parametrize("release", ["6.1.0", "6.11.7", "5.14.0-427.el9", "none"])
def test_queues_stay_where_the_table_does_not_follow_them(host: NicHost, release: str) -> None:
    host.write("proc/sys/kernel/osrelease", f"{release}\n")
    own = host.insert("virtio_rss", rss={"stale": True})
    why = STALE.replace("6.1.0", release)
    assert host.reason(channels(combined=2), rss(equal=2)) == why and not own.changes
    four = {"combined": 4}
    without_table = host.insert("virtio", channels=four, most_channels=four)
    host.apply(channels(combined=2))
    assert without_table.changes == ["-L combined 2"]


@pytest.mark.parametrize("release", ["6.12.0-rc7", "6.12.1", "6.18.5", "10.0"])
def test_queues_change_where_the_table_follows_them(host: NicHost, release: str) -> None:
    host.write("proc/sys/kernel/osrelease", f"{release}\n")
    own = host.insert("virtio_rss")
    had = own.state
    with host.applied(channels(combined=2), rss(equal=2)):
        pass
    assert own.state == had and not own.rss.configured


FLOW_KEY = "flows use these fields for computing Hash flow key:\n"


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        (f"TCP over IPV4 {FLOW_KEY}IP SA\nIP DA\n\n", "sd"),
        (f"UDP over IPV6 {FLOW_KEY}None\n", ""),
        ("TCP over IPV4 flows - All matching flows discarded on RX\n", "r"),
        ("x:\nL2DA\nVLAN tag\nL3 proto\nL4 bytes 2 & 3 [TCP/UDP dst port]\n", "mvtn"),
    ],
)
def test_hashed_fields_are_read(text: str, letters: str) -> None:
    assert hashed_fields(text) == letters


def test_a_card_without_a_table_has_a_function_alone(host: NicHost) -> None:
    """As with ethtool 6.1 and virtio_net of Linux 6.18, on a machine without RSS."""
    own = host.insert("virtio")
    assert host.ask("facts")["nics"]["eth0"]["rss"] is None
    kept = NicRss(Host(str(host.path))).runtime(ETH0)
    assert kept == {"rings": 1, "hfunc": "toeplitz", **own.rss.fields}


def test_what_newer_versions_of_ethtool_tell_besides_is_left_out(host: NicHost) -> None:
    own = host.insert("i40e")
    text = own.rss.show(4, False) + "RSS input transformation:\n    symmetric-xor: on\n"
    host.patch.setattr(own.rss, "show", lambda rings, over_ioctl: text, raising=False)
    assert host.plan(rss(hfunc="toeplitz"))[0]["runtime"] == {"hfunc": "toeplitz"}


def queues_of_the_catalogue(host: NicHost) -> list[dict[str, Any]]:
    """`nic_rss` for a host, which it has to be for; these cards do not have its interrupts."""
    tuning, facts = load_tuning(ROOT / "tunings/nic_rss.yaml"), host.ask("facts")
    assert misfits(tuning, facts) == []
    of_card = ("nic.channels", "nic.ring", "nic.rss")
    return [own for own in encoded(render(tuning, facts)) if own["kind"] in of_card]


@each_card
def test_the_catalogues_queues_fit_every_card_that_spreads_packets(
    host: NicHost, card: str
) -> None:
    own = host.insert(card)
    had, wanted = own.state, queues_of_the_catalogue(host)
    with host.applied(*wanted):
        assert own.channels["combined"] == 2 and own.rss.table == even(own, 2)
        assert own.ring["rx"] == own.most_ring["rx"]
        assert queues_of_the_catalogue(host) == wanted
    assert own.state == had


@pytest.mark.parametrize(
    ("card", "cpus", "speed", "queues"),
    [
        *(("ice", 80, speed, queues) for speed, queues in ((10000, 8), (25000, 20), (100000, 40))),
        *(("ice", 256, 100000, 64), ("ice", 80, -1, 8), ("ixgbe", 40, -1, 8)),
    ],
)
def test_a_faster_link_has_more_queues(
    host: NicHost, card: str, cpus: int, speed: int, queues: int
) -> None:
    """Within reach of the table of ixgbe."""
    host.write("sys/devices/system/cpu/online", f"0-{cpus - 1}\n")
    host.write("sys/class/net/eth0/speed", f"{speed}\n")
    own = host.insert(card, channels={"combined": min(cpus, 64)}, most_channels={"combined": 64})
    had, wanted = own.state, queues_of_the_catalogue(host)
    with host.applied(*wanted):
        assert own.channels["combined"] == queues and own.rss.table == even(own, queues)
    assert own.state == had


def test_rfs_stays_in_software(host: NicHost) -> None:
    host.insert("ice")
    tuning = load_tuning(ROOT / "tunings/rps_rfs.yaml")
    assert "no interface is up and has the driver" in misfits(tuning, host.ask("facts"))[0]


sizes = st.sampled_from((1, 8, 64, 128, 512))


@settings(deadline=None)
@given(sizes, st.integers(1, 70), st.data())
def test_the_words_for_a_table_make_it(entries: int, rings: int, data: st.DataObject) -> None:
    numbers = st.lists(st.integers(0, rings - 1), min_size=entries, max_size=entries)
    table = data.draw(st.one_of(numbers, numbers.map(sorted)))
    words = words_for(table, rings)
    assert spread(words, entries, rings) == table
    assert can_be_written(words) or table != sorted(table)


@settings(deadline=None)
@given(sizes, st.lists(st.integers(0, 9), min_size=1, max_size=9).filter(any))
def test_weights_are_spread_as_ethtool_does(entries: int, weights: list[int]) -> None:
    card = make_card("mlx5", rss={"entries": entries}).rss
    card.make(9)
    if sum(weights) <= entries:
        card.change(["weight", *map(str, weights)], 9)
        assert spread("weight " + " ".join(map(str, weights)), entries, 9) == card.table
