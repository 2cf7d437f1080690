# SPDX-License-Identifier: Apache-2.0
"""How a network card spreads packets over its queues, on the cards of several drivers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgetune.documents.reading import encoded
from edgetune.hosts.agent import unattended
from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.kinds.nic_rss import NicRss
from edgetune.hosts.agent.kinds.rss_table import can_be_written, spread, words_for
from edgetune.hosts.agent.kinds.rss_text import hashed_fields
from edgetune.rendering import misfits, render
from edgetune.tuning import load_tuning
from tests.support import ROOT, agent_nic, agent_rss
from tests.support.agent_nic import CARDS, Card, Make, NicHost, steer
from tests.support.agent_root import request, setting
from tests.support.examples import examples

ETH0 = {"interface": "eth0"}
RSS_CARDS = [make for make in CARDS if make is not agent_nic.virtio]
each_card = pytest.mark.parametrize("card", RSS_CARDS, ids=lambda make: make.__name__)
KEY = ":".join(["6d", "5a"] * 20)


@pytest.fixture
def host(tmp_path: Path) -> NicHost:
    return NicHost(tmp_path / "host")


def rss(only: str | None = None, **value: int | str) -> dict[str, Any]:
    return setting("nic.rss", ETH0, value, only=only)


def channels(only: str | None = None, **value: int) -> dict[str, Any]:
    return setting("nic.channels", ETH0, value, only=only)


def even(card: Card, queues: int) -> list[int]:
    """The table of a card, spread over its first queues."""
    return [entry % queues for entry in range(len(card.rss.table))]


def state_of(card: Card) -> Any:
    return [dict(card.channels), dict(card.ring), dict(card.coalesce), card.rss.state]


@each_card
def test_packets_are_spread_over_fewer_queues_and_as_before(
    host: NicHost, monkeypatch: pytest.MonkeyPatch, card: Make
) -> None:
    own = card().install(host, monkeypatch)
    steer(host)
    before, had, size = host.tree(), state_of(own), len(own.rss.table)
    assert host.ask("facts")["nics"]["eth0"]["rss"] == {"queues": own.rings, "table_size": size}
    row = host.plan(rss(equal=1))[0]
    assert (row["status"], row["runtime"]) == ("change", {"equal": own.rings})
    assert host.plan(rss(equal=own.rings))[0]["reason"] == "would be lost at the next boot"
    host.apply(rss(equal=1))
    assert own.rss.table == even(own, 1) and own.changes == ["-X equal 1"]
    assert host.ask("facts")["nics"]["eth0"]["rss"] == {"queues": 1, "table_size": size}
    assert host.ask("verify", tuning="t", settings=[rss(equal=1)])["verified"]
    assert not host.apply(rss(equal=1))["changed"]
    host.restore()
    assert own.changes == ["-X equal 1", "-X default"]
    assert (state_of(own), host.tree()) == (had, before)
    assert not own.rss.configured


@pytest.mark.parametrize(
    ("card", "value", "changes", "back"),
    [
        (agent_nic.ixgbe, {"udp4": "sdfn"}, ["-N rx-flow-hash udp4 sdfn"], 1),
        (agent_nic.ixgbe, {"weight": "6 2 0 0"}, ["-X weight 6 2"], 1),
        (agent_nic.i40e, {"weight": "3 0 1", "sctp4": "ds"}, None, 2),
        (agent_nic.mlx5, {"equal": 4, "hfunc": "xor"}, ["-X equal 4 hfunc xor"], 1),
        (agent_nic.mlx5, {"key": KEY.upper()}, [f"-X hkey {KEY}"], 1),
        (agent_nic.ena, {"hfunc": "crc32", "key": KEY}, [f"-X hkey {KEY} hfunc crc32"], 1),
        (
            agent_nic.bnxt,
            {"equal": 2, "udp4": "sdfn", "tcp4": "sdfn"},
            ["-X equal 2", "-N rx-flow-hash udp4 sdfn"],
            2,
        ),
    ],
)
def test_parts_of_rss_are_changed_where_they_differ(
    host: NicHost,
    monkeypatch: pytest.MonkeyPatch,
    card: Make,
    value: dict[str, int | str],
    changes: list[str] | None,
    back: int,
) -> None:
    own = card().install(host, monkeypatch)
    had = state_of(own)
    host.apply(rss(**value))
    assert changes is None or own.changes == changes
    assert host.plan(rss(**value))[0]["status"] == "noop"
    done = len(own.changes)
    host.restore()
    assert state_of(own) == had and len(own.changes) == done + back


def test_a_table_is_shown_in_the_terms_of_the_setting(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.mlx5().install(host, monkeypatch)
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
    ("card", "value", "reason"),
    [
        (agent_nic.veth, {"equal": 2}, "ethtool -x eth0: Cannot get RX ring count"),
        (agent_nic.virtio, {"udp4": "sdfn"}, "ethtool tells no RSS table of eth0"),
        (agent_nic.virtio, {"equal": 1}, "ethtool tells no RSS table of eth0"),
        (agent_nic.virtio, {"key": KEY, "udp4": "sdfn"}, "ethtool tells no RSS key, table of eth0"),
        (agent_nic.ixgbe, {"hfunc": "xor"}, "ethtool tells no RSS hfunc of eth0"),
        (agent_nic.i40e, {"hfunc": "xor"}, "i40e knows no hash function but toeplitz"),
        (agent_nic.mlx5, {"sctp4": "sdfn"}, "ethtool tells no RSS sctp4 of eth0"),
        (agent_nic.mlx5, {"equal": 7}, "eth0 has 6 receive queues, not 7"),
        (agent_nic.ena, {"weight": "1 0 1"}, "eth0 has 2 receive queues, not 3"),
        (
            agent_nic.bnxt,
            {"weight": "64 1"},
            "the weights add up to more than the table's 64",
        ),
        (agent_nic.i40e, {"key": "6d:5a:56"}, "the key of eth0 has 52 bytes, not 3"),
    ],
)
def test_rss_that_a_card_cannot_have_is_refused(
    host: NicHost, monkeypatch: pytest.MonkeyPatch, card: Make, value: Any, reason: str
) -> None:
    own = card().install(host, monkeypatch)
    row = host.plan(rss(**value))[0]
    assert row["status"] == "unsupported" and row["reason"].startswith(reason)
    assert host.fail("apply", **host.change(rss(**value)))["reason"] == "refused"
    assert not own.changes


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({}, "value"),
        ({"equal": 0}, "value.equal"),
        ({"equal": "4"}, "value.equal"),
        ({"equal": 4, "weight": "1 1"}, "value.weight"),
        ({"weight": "0 0"}, "value.weight"),
        ({"weight": "4"}, "value.weight"),
        ({"hfunc": "md5"}, "value.hfunc"),
        ({"key": "6d5a"}, "value.key"),
        ({"tcp4": "r"}, "value.tcp4"),
        ({"tcp4": ""}, "value.tcp4"),
        ({"ether": "m"}, "value.ether"),
        ({"default": 1}, "value.default"),
    ],
)
def test_rss_that_is_none_is_a_bad_request(host: NicHost, value: Any, field: str) -> None:
    own = setting("nic.rss", ETH0, value)
    error = host.fail("plan", tuning="t", digest="d", settings=[own])
    assert (error["reason"], error["field"]) == ("bad_request", f"settings[0].{field}")


def test_fields_that_a_driver_refuses_are_undone(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.ixgbe().install(host, monkeypatch)
    had = state_of(own)
    error = host.fail("apply", **host.change(rss(equal=2, udp6="sdfn", tcp4="sd")))
    what = "Cannot change RX network flow hashing options: Invalid argument; undone"
    assert error["message"].endswith(f"ethtool -N eth0 rx-flow-hash tcp4 sd: {what}")
    assert state_of(own) == had


def test_fields_that_were_none_are_left_to_the_driver(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.mlx5()
    own.rss.fields = {**own.rss.fields, "udp4": ""}
    own.install(host, monkeypatch)
    host.apply(channels(combined=2))
    own.rss.fields = {**own.rss.fields, "udp4": "sd"}
    host.restore()
    assert own.changes == ["-L combined 2", "-L combined 6"]


def test_a_key_that_the_driver_keeps_is_undone(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.bnxt().install(host, monkeypatch)
    error = host.fail("apply", **host.change(rss(key=KEY)))
    assert error["message"].endswith("Operation not supported; undone")
    assert own.changes == [f"-X hkey {KEY}"]


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
def test_somebody_elses_table_comes_back(
    host: NicHost, monkeypatch: pytest.MonkeyPatch, words: str, writes: str
) -> None:
    own = agent_nic.mlx5().install(host, monkeypatch)
    own.rss.change(words.split(), 6)
    had = state_of(own)
    host.apply(rss(equal=5))
    host.restore()
    assert state_of(own) == had and own.changes[-1] == writes


def test_a_table_that_ethtool_cannot_write_is_left_alone(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.ena().install(host, monkeypatch)
    own.rss.table[:3] = [1, 1, 0]
    row = host.plan(rss(equal=1))[0]
    why = "eth0 has an indirection table that ethtool cannot write back: 1 1 0 1 0 1"
    assert row["status"] == "unsupported" and row["reason"].startswith(why)
    had = state_of(own)
    host.apply(rss(udp4="sd"))
    host.restore()
    assert state_of(own) == had and not any("-X" in call for call in own.changes)


def test_a_table_reaches_only_so_many_queues_with_ixgbe(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = replace(agent_nic.ixgbe(), channels={"combined": 40}, most_channels={"combined": 63})
    own.install(host, monkeypatch)
    had = state_of(own)
    assert host.ask("facts")["nics"]["eth0"]["rss"] == {"queues": 16, "table_size": 128}
    reason = host.plan(rss(equal=20))[0]["reason"]
    assert reason == "the table of eth0 reaches 16 queues, not 20"
    assert host.plan(rss(equal=16))[0]["runtime"] == {"equal": 16}
    host.apply(channels(combined=8), rss(equal=6))
    assert own.rss.table == even(own, 6)
    host.restore()
    assert state_of(own) == had


def test_a_longer_table_of_ixgbe_reaches_further(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = replace(agent_rss.IXGBE, entries=512, reach=64)
    own = replace(agent_nic.ixgbe(), channels={"combined": 40}, rss=more)
    own.install(host, monkeypatch)
    host.apply(rss(equal=20))
    assert own.rss.table == even(own, 20)


@each_card
def test_other_channels_spread_packets_over_all_of_them_and_back(
    host: NicHost, monkeypatch: pytest.MonkeyPatch, card: Make
) -> None:
    own = card().install(host, monkeypatch)
    had = state_of(own)
    host.apply(channels(combined=1))
    assert own.rss.table == even(own, 1)
    host.restore()
    assert state_of(own) == had and not own.rss.configured
    assert not any("-X" in call for call in own.changes)


@each_card
def test_a_table_that_was_set_outlives_everything_that_resets_it(
    host: NicHost, monkeypatch: pytest.MonkeyPatch, card: Make
) -> None:
    own = card().install(host, monkeypatch)
    host.apply(rss(equal=1), tuning="a")
    had = state_of(own)
    more = own.most_channels["combined"]
    adaptive = {"adaptive-rx": "off"} if "adaptive-rx" in own.coalesce else {}
    others = [
        channels(combined=more),
        setting("nic.ring", ETH0, {"rx": own.most_ring["rx"]}),
        setting("nic.features", ETH0, {"generic-receive-offload": "off"}),
        setting("nic.coalesce", ETH0, {**adaptive, "rx-usecs": 70}),
    ]
    for number, other in enumerate(others):
        host.apply(other, tuning=f"b{number}")
        assert own.rss.table == even(own, 1)
    assert host.ask("verify", tuning="a", settings=[rss(equal=1)])["verified"]
    for number in reversed(range(len(others))):
        host.restore(f"b{number}")
        assert own.rss.table == even(own, 1)
    assert state_of(own) == had


def test_a_table_that_needs_more_queues_is_not_overruled(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.mlx5().install(host, monkeypatch)
    own.rss.change(["equal", "5"], 6)
    had = state_of(own)
    row = host.plan(channels(combined=4))[0]
    assert row["status"] == "unsupported"
    assert row["reason"] == (
        "the indirection table of eth0 needs 5 queues, not 4: "
        "nic.rss in the same tuning can spread packets anew"
    )
    assert host.plan(channels(combined=4), rss(udp4="sd"))[0]["status"] == "unsupported"
    assert host.plan(channels(combined=5))[0]["status"] == "change"
    host.apply(channels(combined=4), rss(equal=3))
    assert own.changes == ["-L combined 4", "-X default", "-L combined 4", "-X equal 3"]
    host.restore()
    assert own.rss.configured and state_of(own) == had


STALE = (
    "virtio_net of Linux 6.1.0 would send packets of eth0 to queues that are gone, as its "
    "indirection table does not follow the queues before Linux 6.12"
)


@pytest.mark.parametrize("release", ["6.1.0", "6.11.7", "5.14.0-427.el9", "none"])
def test_queues_stay_where_the_table_does_not_follow_them(
    host: NicHost, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    host.write("proc/sys/kernel/osrelease", f"{release}\n")
    own = agent_nic.virtio_rss(stale=True).install(host, monkeypatch)
    why = STALE.replace("6.1.0", release)
    assert [row["reason"] for row in host.plan(channels(combined=2))] == [why]
    error = host.fail("apply", **host.change(channels(combined=2), rss(equal=2)))
    assert error["reason"] == "refused" and error["message"].endswith(why)
    assert not own.changes


@pytest.mark.parametrize("release", ["6.12.0-rc7", "6.12.1", "6.18.5", "10.0"])
def test_queues_change_where_the_table_follows_them(
    host: NicHost, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    host.write("proc/sys/kernel/osrelease", f"{release}\n")
    own = agent_nic.virtio_rss().install(host, monkeypatch)
    had = state_of(own)
    host.apply(channels(combined=2), rss(equal=2))
    host.restore()
    assert state_of(own) == had and not own.rss.configured


def test_a_card_of_virtio_without_a_table_may_have_other_queues(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = replace(agent_nic.virtio_rss(), rss=agent_rss.VIRTIO).install(host, monkeypatch)
    host.apply(channels(combined=2))
    assert own.changes == ["-L combined 2"]


@pytest.mark.parametrize(
    "wanted",
    [
        rss(equal=2),
        rss(udp4="sd"),
        setting("nic.features", ETH0, {"receive-hashing": "on"}),
    ],
)
def test_a_stale_table_is_not_told_to_the_device(
    host: NicHost, monkeypatch: pytest.MonkeyPatch, wanted: dict[str, Any]
) -> None:
    own = agent_nic.virtio_rss(stale=True).install(host, monkeypatch)
    assert host.plan(wanted)[0]["status"] == "change"
    own.set_channels({"combined": "2"})
    assert host.plan(wanted)[0]["reason"] == STALE
    host.write("proc/sys/kernel/osrelease", "6.12.0\n")
    assert host.plan(wanted)[0]["status"] == "change"


def test_the_drivers_own_table_is_not_written_back(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = replace(agent_nic.mlx5(), rss=replace(agent_rss.MLX5, stale=True))
    own.install(host, monkeypatch)
    table = list(own.rss.table)
    host.apply(channels(combined=2))
    assert own.rss.table == table and own.changes == ["-L combined 2"]
    host.restore()
    assert own.changes == ["-L combined 2", "-L combined 6"]
    # Nor where a tuning has to do with RSS, and not with the table.
    host.apply(rss(udp4="sd"))
    own.set_channels({"combined": "2"})
    host.restore()
    assert own.rss.fields["udp4"] == "sdfn" and not [
        call for call in own.changes if call.startswith("-X")
    ]


def test_the_drivers_own_table_does_not_give_way(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.i40e().install(host, monkeypatch)
    wanted = host.change(channels(combined=2))

    def refuse(channels: Any) -> None:
        raise agent_rss.Complaint("netlink error: Invalid argument")

    monkeypatch.setattr(own, "set_channels", refuse)
    assert host.fail("apply", **wanted)["message"].endswith("Invalid argument; undone")
    assert own.changes == ["-L combined 2"]


def test_a_table_that_only_the_kernel_knows_to_be_set_gives_way(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.i40e().install(host, monkeypatch)
    own.rss.change(["equal", "4"], 4)
    host.apply(channels(combined=2))
    assert own.changes == ["-L combined 2", "-X default", "-L combined 2"]
    host.restore()
    assert own.rss.table == even(own, 4)


def test_queues_that_the_same_tuning_adds_can_be_used(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.mlx5().install(host, monkeypatch)
    had = state_of(own)
    assert [row["status"] for row in host.plan(channels(combined=8), rss(equal=8))] == [
        "change"
    ] * 2
    reason = host.plan(channels(combined=3), rss(equal=4))[1]["reason"]
    assert reason == "eth0 has 3 receive queues, not 4"
    # A table that is as wanted now is set again after that, in vain.
    reason = host.plan(channels(combined=3), rss(equal=6))[1]["reason"]
    assert reason == "eth0 has 3 receive queues, not 6"
    kept = host.plan(channels(combined=3, only="raise"), rss(equal=4))[1]
    assert kept["status"] == "change"
    host.apply(channels(combined=8), rss(weight="1 1 1 1 1 1 1 5"))
    assert max(own.rss.table) == 7
    host.restore()
    assert state_of(own) == had


def test_a_table_whose_size_changes_gives_way_to_other_channels(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = replace(agent_nic.bnxt(), most_channels={"combined": 100})
    own.install(host, monkeypatch)
    own.rss.change(["weight", "2", "1"], 3)
    had = state_of(own)
    host.apply(channels(combined=70))
    assert own.changes == ["-L combined 70", "-X default", "-L combined 70", "-X weight 21 11"]
    host.restore()
    assert state_of(own) == had


def test_channels_that_cannot_be_changed_leave_the_table(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.i40e().install(host, monkeypatch)
    own.rss.change(["equal", "3"], 4)
    had = state_of(own)
    own.busy = True
    error = host.fail("apply", **host.change(channels(combined=2), rss(equal=1)))
    assert "Device or resource busy" in error["message"] and error["message"].endswith("undone")
    assert state_of(own) == had


def test_a_table_that_gave_way_in_vain_comes_back(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.i40e().install(host, monkeypatch)
    own.rss.change(["equal", "3"], 4)
    had = state_of(own)
    wanted = host.change(channels(combined=2), rss(equal=1))

    def refuse(channels: Any) -> None:
        raise agent_rss.Complaint("netlink error: Invalid argument")

    monkeypatch.setattr(own, "set_channels", refuse)
    assert host.fail("apply", **wanted)["message"].endswith("Invalid argument; undone")
    assert own.changes == ["-L combined 2", "-X default", "-L combined 2", "-X equal 3"]
    assert state_of(own) == had


def test_of_two_tables_the_newer_one_is_kept(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.i40e().install(host, monkeypatch)
    host.apply(rss(equal=2, udp4="sd"), tuning="a")
    host.apply(rss(weight="3 1"), tuning="b")
    kept = NicRss(Host(str(host.path))).persistent(ETH0)
    assert kept == {"weight": "3 1", "udp4": "sd"}
    assert not host.ask("verify", tuning="a", settings=[rss(equal=2, udp4="sd")])["verified"]
    own.rss = replace(agent_rss.I40E)
    own.rss.make(own.rings)
    assert host.boot_hook() == []
    assert own.rss.table == spread("weight 3 1", 512, 4) and own.rss.fields["udp4"] == "sd"
    host.restore("a")
    assert own.rss.table == spread("weight 3 1", 512, 4) and own.rss.fields["udp4"] == "sdfn"
    host.restore("b")
    assert own.rss.table == even(own, 4)


def test_a_boot_waits_for_the_interface_to_have_a_table(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.i40e().install(host, monkeypatch)
    started: list[list[str]] = []
    monkeypatch.setattr(Host, "detach", lambda _, command: started.append(list(command)))
    host.apply(rss(equal=2))
    own.rss = replace(agent_rss.I40E)
    own.rss.make(own.rings)
    host.write("sys/class/net/eth0/flags", "0x1002\n")
    assert host.boot_hook() == [] and own.rss.table == even(own, 4)
    assert [command[-1] for command in started] == ["late"]
    host.write("sys/class/net/eth0/flags", "0x1003\n")
    assert unattended.late(Host(str(host.path))) == [] and own.rss.table == even(own, 2)


def test_only_lower_leaves_a_table_over_fewer_queues(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.mlx5().install(host, monkeypatch)
    own.rss.change(["equal", "2"], 6)
    assert host.plan(rss(equal=4, only="lower"))[0]["status"] == "noop"
    own.rss.change(["weight", "2", "1"], 6)
    assert host.plan(rss(equal=4, only="lower"))[0]["wanted"] == {"equal": 4}
    error = host.fail("plan", tuning="t", digest="d", settings=[rss(weight="1 1", only="lower")])
    assert error["field"] == "settings[0].only"


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        (
            "TCP over IPV4 flows use these fields for computing Hash flow key:\nIP SA\nIP DA\n\n",
            "sd",
        ),
        ("UDP over IPV6 flows use these fields for computing Hash flow key:\nNone\n", ""),
        ("TCP over IPV4 flows - All matching flows discarded on RX\n", "r"),
        ("x:\nL2DA\nVLAN tag\nL3 proto\nL4 bytes 2 & 3 [TCP/UDP dst port]\n", "mvtn"),
    ],
)
def test_hashed_fields_are_read(text: str, letters: str) -> None:
    assert hashed_fields(text) == letters


def test_a_card_without_a_table_tells_what_a_real_one_does(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.virtio().install(host, monkeypatch)
    # Recorded with ethtool 6.1 and virtio_net of Linux 6.18, on a machine without RSS.
    assert own.show("-x") == (
        "RX flow hash indirection table for eth0 with 1 RX ring(s):\nOperation not supported\n"
        "RSS hash key:\nOperation not supported\n"
        "RSS hash function:\n    toeplitz: on\n    xor: off\n    crc32: off\n"
    )
    assert own.show("-n", "rx-flow-hash", "tcp4") == (
        "TCP over IPV4 flows use these fields for computing Hash flow key:\nNone\n"
    )
    assert host.ask("facts")["nics"]["eth0"]["rss"] is None
    kept = NicRss(Host(str(host.path))).runtime(ETH0)
    flows = dict.fromkeys(("tcp4", "udp4", "sctp4", "tcp6", "udp6", "sctp6"), "")
    assert kept == {"rings": 1, "hfunc": "toeplitz", **flows}


def test_what_newer_versions_of_ethtool_tell_besides_is_left_out(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.i40e().install(host, monkeypatch)
    more = "RSS input transformation:\n    symmetric-xor: on\n"
    text = own.rss.show(4, False) + more
    monkeypatch.setattr(own.rss, "show", lambda rings, over_ioctl: text, raising=False)
    assert host.plan(rss(hfunc="toeplitz"))[0]["runtime"] == {"hfunc": "toeplitz"}


def rendered(host: NicHost, name: str) -> list[dict[str, Any]]:
    """A tuning of the catalogue for a host, which it has to be for."""
    tuning, facts = load_tuning(ROOT / "tunings" / f"{name}.yaml"), host.ask("facts")
    assert misfits(tuning, facts) == []
    return encoded(render(tuning, facts))


def queues_of(settings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the interrupts, which these cards do not have."""
    return [own for own in settings if own["kind"] in ("nic.channels", "nic.ring", "nic.rss")]


@each_card
def test_the_catalogues_queues_fit_every_card_that_spreads_packets(
    host: NicHost, monkeypatch: pytest.MonkeyPatch, card: Make
) -> None:
    own = card().install(host, monkeypatch)
    had = state_of(own)
    wanted = queues_of(rendered(host, "nic_rss"))
    assert "unsupported" not in [row["status"] for row in host.plan(*wanted)]
    host.apply(*wanted)
    assert own.channels["combined"] == 2 and own.rss.table == even(own, 2)
    assert own.ring["rx"] == own.most_ring["rx"]
    assert queues_of(rendered(host, "nic_rss")) == wanted
    host.restore()
    assert state_of(own) == had


def test_the_catalogues_queues_are_within_reach_of_a_large_host(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.write("sys/devices/system/cpu/online", "0-39\n")
    own = replace(agent_nic.ixgbe(), channels={"combined": 40}, most_channels={"combined": 63})
    own.install(host, monkeypatch)
    had = state_of(own)
    host.apply(*queues_of(rendered(host, "nic_rss")))
    assert own.channels == {"combined": 8} and own.rss.table == even(own, 8)
    host.restore()
    assert state_of(own) == had


@pytest.mark.parametrize(
    ("cpus", "speed", "queues"),
    [(80, 10000, 8), (80, 25000, 20), (80, 100000, 40), (256, 100000, 64), (80, -1, 8)],
)
def test_a_faster_link_has_more_queues(
    host: NicHost, monkeypatch: pytest.MonkeyPatch, cpus: int, speed: int, queues: int
) -> None:
    host.write("sys/devices/system/cpu/online", f"0-{cpus - 1}\n")
    host.write("sys/class/net/eth0/speed", f"{speed}\n")
    own = replace(agent_nic.ice(), channels={"combined": 64}, most_channels={"combined": 64})
    own.install(host, monkeypatch)
    channels, _, spread = queues_of(rendered(host, "nic_rss"))
    assert (channels["value"], spread["value"]) == ({"combined": queues}, {"equal": queues})


def test_rfs_stays_in_software(host: NicHost, monkeypatch: pytest.MonkeyPatch) -> None:
    agent_nic.ice().install(host, monkeypatch)
    tuning = load_tuning(ROOT / "tunings" / "rps_rfs.yaml")
    assert "no interface is up and has the driver" in misfits(tuning, host.ask("facts"))[0]


@each_card
def test_the_catalogues_coalescing_fits_every_card(
    host: NicHost, monkeypatch: pytest.MonkeyPatch, card: Make
) -> None:
    own = card().install(host, monkeypatch)
    had = state_of(own)
    host.apply(*rendered(host, "nic_coalesce"))
    assert own.coalesce["rx-usecs"] == 100
    assert own.coalesce.get("adaptive-rx", "off") == "off"
    assert own.coalesce.get("rx-frames", 64) == 64
    host.restore()
    assert state_of(own) == had


def test_the_catalogues_flow_director_is_that_of_ixgbe(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.ixgbe().install(host, monkeypatch)
    host.apply(*rendered(host, "flow_director_off"))
    assert own.features["ntuple-filters"] == "on"
    other = NicHost(host.path.parent / "other")
    agent_nic.i40e().install(other, monkeypatch)
    tuning = load_tuning(ROOT / "tunings" / "flow_director_off.yaml")
    assert misfits(tuning, other.ask("facts")) == ["no interface is up and has the driver ixgbe"]


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
    card = replace(agent_rss.MLX5, entries=entries)
    card.make(9)
    if sum(weights) <= entries:
        card.change(["weight", *map(str, weights)], 9)
        assert spread("weight " + " ".join(map(str, weights)), entries, 9) == card.table


def tables_for(card: Card) -> st.SearchStrategy[list[str]]:
    """Words for a table that the card can take."""
    most = min(card.rings, card.rss.reach)
    equal = st.integers(1, most).map(lambda queues: ["equal", str(queues)])
    weights = st.lists(st.integers(0, 7), min_size=2, max_size=max(most, 2)).filter(any)
    some = weights.filter(lambda own: any(own[:most]) and not any(own[most:]))
    return st.just(["default"]) | equal | some.map(lambda own: ["weight", *map(str, own)])


def rss_for(card: Card) -> st.SearchStrategy[dict[str, Any]]:
    """A setting; it may want more queues than there are."""
    most = min(card.most_channels["combined"], card.rss.reach)
    key = st.just(card.rss.key[:-2] + "ee") if not card.rss.key_fixed else st.nothing()
    parts = {
        "equal": st.integers(1, most),
        **({} if card.rss.key_fixed else {"key": key}),
        **{name: st.sampled_from(("sd", "sdfn")) for name in card.rss.free},
    }
    if not card.over_ioctl:
        parts["hfunc"] = st.sampled_from(card.rss.functions)
    return st.fixed_dictionaries({}, optional=parts).filter(bool).map(lambda own: rss(**own))


@pytest.mark.slow
@each_card
@examples(12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_is_done_to_rss_is_taken_back_or_refused(
    tmp_path_factory: pytest.TempPathFactory, card: Make, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        host = NicHost(tmp_path_factory.mktemp("rss") / "host")
        own = card().install(host, patch)
        table = data.draw(tables_for(own))
        own.rss.change(table, own.rings)
        before = state_of(own)
        most = st.integers(1, own.most_channels["combined"])
        rings = st.integers(256, own.most_ring["rx"])
        drawn = [
            most.map(lambda number: channels(combined=number)),
            rings.map(lambda number: setting("nic.ring", ETH0, {"rx": number})),
            rss_for(own),
        ]
        some = st.tuples(*(st.none() | one for one in drawn)).filter(any)
        wanted = [one for one in data.draw(some) if one]
        planned = {row["status"] for row in host.plan(*wanted)}
        if "unsupported" in planned:
            assert host.fail("apply", **host.change(*wanted))["reason"] == "refused"
            assert not own.changes
            return
        reply = host.send(request("apply", **host.change(*wanted)))
        assert reply["ok"], reply
        assert not host.apply(*wanted)["changed"]
        assert host.ask("verify", tuning="t", settings=wanted)["verified"]
        host.restore()
        assert state_of(own) == before
        assert not (own.rss.configured and table == ["default"])
