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
from edgetune.hosts.agent import unattended
from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.kinds.nic_rss import NicRss
from edgetune.hosts.agent.kinds.rss_table import can_be_written, spread, words_for
from edgetune.hosts.agent.kinds.rss_text import hashed_fields
from edgetune.rendering import misfits, render
from edgetune.tuning import load_tuning
from tests.support import ROOT
from tests.support.agent_nic import CARDS, Card, NicHost, make_card, steer
from tests.support.agent_root import setting
from tests.support.agent_rss import Complaint

ETH0 = {"interface": "eth0"}
RSS_CARDS = [make for make in CARDS if make.__name__ != "virtio"]
each_card = pytest.mark.parametrize("card", [make.__name__ for make in RSS_CARDS])
KEY = ":".join(["6d", "5a"] * 20)


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


def of_tables(card: Card) -> list[str]:
    """The calls that changed a table."""
    return [call for call in card.changes if call.startswith("-X")]


def refuse_channels(host: NicHost, card: Card) -> None:
    def refuse(channels: Any) -> None:
        raise Complaint("netlink error: Invalid argument")

    host.patch.setattr(card, "set_channels", refuse)


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


def test_a_table_is_shown_in_the_terms_of_the_setting(host: NicHost) -> None:
    own = host.insert("mlx5")
    shown = {
        "equal 4": ({"equal": 4}, {"weight": "equal 4"}),
        "weight 64 32 32": ({"equal": "weight 2 1 1"}, {"weight": "2 1 1"}),
        "start 2 equal 3": ({"equal": "start 2 equal 3"}, {"weight": "start 2 equal 3"}),
    }
    for words, (as_equal, as_weight) in shown.items():
        own.rss.change(words.split(), 6)
        assert host.plan(rss(equal=1))[0]["runtime"] == as_equal
        assert host.plan(rss(weight="1 1"))[0]["runtime"] == as_weight


@pytest.mark.parametrize(
    ("card", "wanted", "says"),
    [
        (
            *("ixgbe", rss(equal=2, udp6="sdfn", tcp4="sd")),
            "ethtool -N eth0 rx-flow-hash tcp4 sd: Cannot change RX network flow hashing options: "
            "Invalid argument; undone",
        ),
        ("bnxt", rss(key=KEY), "Operation not supported; undone"),
    ],
)
def test_what_a_driver_refuses_of_rss_is_undone(
    host: NicHost, card: str, wanted: dict[str, Any], says: str
) -> None:
    own = host.insert(card)
    had = own.state
    assert host.fail("apply", **host.change(wanted))["message"].endswith(says)
    assert own.state == had and own.changes


def test_fields_that_were_none_are_left_to_the_driver(host: NicHost) -> None:
    fields = {"tcp4": "sdfn", "udp4": "", "tcp6": "sdfn", "udp6": "sdfn"}
    own = host.insert("mlx5", rss={"fields": fields})
    host.apply(channels(combined=2))
    own.rss.fields = {**own.rss.fields, "udp4": "sd"}
    host.restore()
    assert own.changes == ["-L combined 2", "-L combined 6"]


@pytest.mark.parametrize(
    ("words", "writes"),
    [
        ("equal 2", "-X equal 2"),
        ("weight 96 32", "-X weight 3 1"),
        ("weight 0 0 5 3", "-X weight 0 0 5 3"),
        ("start 2 equal 3", "-X start 2 equal 3"),
        ("default", "-X default"),
    ],
)
def test_somebody_elses_table_comes_back(host: NicHost, words: str, writes: str) -> None:
    own = host.insert("mlx5")
    own.rss.change(words.split(), 6)
    had = own.state
    with host.applied(rss(equal=5)):
        pass
    assert own.state == had and own.changes[-1] == writes


def test_a_table_that_ethtool_cannot_write_is_left_alone(host: NicHost) -> None:
    own = host.insert("ena")
    own.rss.table[:3] = [1, 1, 0]
    why = "eth0 has an indirection table that ethtool cannot write back: 1 1 0 1 0 1"
    assert host.reason(rss(equal=1)).startswith(why)
    had = own.state
    with host.applied(rss(udp4="sd")):
        pass
    assert own.state == had and not of_tables(own)


def test_a_table_reaches_only_so_many_queues_with_ixgbe(host: NicHost) -> None:
    forty: dict[str, Any] = {"channels": {"combined": 40}, "most_channels": {"combined": 63}}
    own = host.insert("ixgbe", **forty)
    had = own.state
    assert host.ask("facts")["nics"]["eth0"]["rss"] == {"queues": 16, "table_size": 128}
    assert host.reason(rss(equal=20)) == "the table of eth0 reaches 16 queues, not 20"
    assert host.plan(rss(equal=16))[0]["runtime"] == {"equal": 16}
    with host.applied(channels(combined=8), rss(equal=6)):
        assert own.rss.table == even(own, 6)
    assert own.state == had
    longer = host.insert("ixgbe", rss={"entries": 512, "reach": 64}, **forty)
    host.apply(rss(equal=20))
    assert longer.rss.table == even(longer, 20)


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


def test_a_table_that_needs_more_queues_is_not_overruled(host: NicHost) -> None:
    own = host.insert("mlx5")
    own.rss.change(["equal", "5"], 6)
    had = own.state
    assert host.reason(channels(combined=4)) == (
        "the indirection table of eth0 needs 5 queues, not 4: "
        "nic.rss in the same tuning can spread packets anew"
    )
    assert host.plan(channels(combined=4), rss(udp4="sd"))[0]["status"] == "unsupported"
    assert host.plan(channels(combined=5))[0]["status"] == "change"
    with host.applied(channels(combined=4), rss(equal=3)):
        assert own.changes == ["-L combined 4", "-X default", "-L combined 4", "-X equal 3"]
    assert own.rss.configured and own.state == had


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


@pytest.mark.parametrize(
    "wanted",
    [rss(equal=2), rss(udp4="sd"), setting("nic.features", ETH0, {"receive-hashing": "on"})],
    ids=["table", "fields", "hashing"],
)
def test_a_stale_table_is_not_told_to_the_device(host: NicHost, wanted: dict[str, Any]) -> None:
    own = host.insert("virtio_rss", rss={"stale": True})
    assert host.plan(wanted)[0]["status"] == "change"
    own.set_channels({"combined": "2"})
    assert host.reason(wanted) == STALE
    host.write("proc/sys/kernel/osrelease", "6.12.0\n")
    assert host.plan(wanted)[0]["status"] == "change"


def test_the_drivers_own_table_is_not_written_back(host: NicHost) -> None:
    own = host.insert("mlx5", rss={"stale": True})
    table = list(own.rss.table)
    with host.applied(channels(combined=2)):
        assert own.rss.table == table and own.changes == ["-L combined 2"]
    assert own.changes == ["-L combined 2", "-L combined 6"]
    # Nor where a tuning has to do with RSS, and not with the table.
    host.apply(rss(udp4="sd"))
    own.set_channels({"combined": "2"})
    host.restore()
    assert own.rss.fields["udp4"] == "sdfn" and not of_tables(own)


def test_a_table_that_only_the_kernel_knows_to_be_set_gives_way(host: NicHost) -> None:
    own = host.insert("i40e")
    own.rss.change(["equal", "4"], 4)
    with host.applied(channels(combined=2)):
        assert own.changes == ["-L combined 2", "-X default", "-L combined 2"]
    assert own.rss.table == even(own, 4)


def test_more_queues_of_one_tuning_can_be_used_by_it(host: NicHost) -> None:
    host.insert("mlx5")
    rows = host.plan(channels(combined=8), rss(equal=8))
    assert [row["status"] for row in rows] == ["change", "change"]
    kept = host.plan(channels(combined=3, only="raise"), rss(equal=4))[1]
    assert kept["status"] == "change"


def test_a_table_whose_size_changes_gives_way_to_other_channels(host: NicHost) -> None:
    own = host.insert("bnxt", most_channels={"combined": 100})
    own.rss.change(["weight", "2", "1"], 3)
    had = own.state
    with host.applied(channels(combined=70)):
        assert own.changes == ["-L combined 70", "-X default", "-L combined 70", "-X weight 21 11"]
    assert own.state == had


@pytest.mark.parametrize(
    ("table", "changes"),
    [
        # The driver's own does not give way.
        ("", ["-L combined 2"]),
        ("equal 3", ["-L combined 2", "-X default", "-L combined 2", "-X equal 3"]),
    ],
)
def test_a_table_that_gave_way_in_vain_comes_back(
    host: NicHost, table: str, changes: list[str]
) -> None:
    own = host.insert("i40e")
    if table:
        own.rss.change(table.split(), 4)
    had = own.state
    wanted = host.change(channels(combined=2), *([rss(equal=1)] if table else []))
    refuse_channels(host, own)
    assert host.fail("apply", **wanted)["message"].endswith("Invalid argument; undone")
    assert own.changes == changes and own.state == had


def test_of_two_tables_the_newer_one_is_kept(host: NicHost) -> None:
    own = host.insert("i40e")
    host.apply(rss(equal=2, udp4="sd"), tuning="a")
    host.apply(rss(weight="3 1"), tuning="b")
    kept = NicRss(Host(str(host.path))).persistent(ETH0)
    assert kept == {"weight": "3 1", "udp4": "sd"}
    assert not host.verifies(rss(equal=2, udp4="sd"), tuning="a")
    own.rss = make_card("i40e").rss
    assert host.boot_hook() == []
    assert own.rss.table == spread("weight 3 1", 512, 4) and own.rss.fields["udp4"] == "sd"
    host.restore("a")
    assert own.rss.table == spread("weight 3 1", 512, 4) and own.rss.fields["udp4"] == "sdfn"
    host.restore("b")
    assert own.rss.table == even(own, 4)


def test_a_boot_waits_for_the_interface_to_have_a_table(host: NicHost) -> None:
    own = host.insert("i40e")
    started: list[list[str]] = []
    host.patch.setattr(Host, "detach", lambda _, command: started.append(list(command)))
    host.apply(rss(equal=2))
    own.rss = make_card("i40e").rss
    host.write("sys/class/net/eth0/flags", "0x1002\n")
    assert host.boot_hook() == [] and own.rss.table == even(own, 4)
    assert [command[-1] for command in started] == ["late"]
    host.write("sys/class/net/eth0/flags", "0x1003\n")
    assert unattended.late(Host(str(host.path))) == [] and own.rss.table == even(own, 2)


def test_only_lower_leaves_a_table_over_fewer_queues(host: NicHost) -> None:
    own = host.insert("mlx5")
    own.rss.change(["equal", "2"], 6)
    assert host.plan(rss(equal=4, only="lower"))[0]["status"] == "noop"
    own.rss.change(["weight", "2", "1"], 6)
    assert host.plan(rss(equal=4, only="lower"))[0]["wanted"] == {"equal": 4}
    error = host.fail("plan", tuning="t", digest="d", settings=[rss(weight="1 1", only="lower")])
    assert error["field"] == "settings[0].only"


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
