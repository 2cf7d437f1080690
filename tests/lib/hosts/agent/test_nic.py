# SPDX-License-Identifier: Apache-2.0
"""What ethtool changes of a network card, on the cards of several drivers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from edgetune.documents.reading import encoded
from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.kinds.nic_coalesce import NicCoalesce
from edgetune.hosts.agent.kinds.nic_rfs import share_of
from edgetune.rendering import render
from edgetune.tuning import load_tuning
from edgetune.vocabulary.values import power_below
from tests.support import ROOT, agent_nic
from tests.support.agent_nic import CARDS, QUEUES, TABLE, Card, Make, NicHost, steer
from tests.support.agent_root import setting
from tests.support.examples import examples

TX_TWICE = {"tx": "on", "tx-checksumming": "off"}
each_card = pytest.mark.parametrize("card", CARDS, ids=lambda make: make.__name__)
property_of = examples(15, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def host(tmp_path: Path) -> NicHost:
    return NicHost(tmp_path / "host")


def ring(only: str | None = None, **value: int) -> dict[str, Any]:
    return setting("nic.ring", {"interface": "eth0"}, value, only=only)


def channels(**value: int) -> dict[str, Any]:
    return setting("nic.channels", {"interface": "eth0"}, value)


def coalesce(**value: int | str) -> dict[str, Any]:
    named = {name.replace("_", "-"): part for name, part in value.items()}
    return setting("nic.coalesce", {"interface": "eth0"}, named)


def features(**value: str) -> dict[str, Any]:
    named = {name.replace("_", "-"): part for name, part in value.items()}
    return setting("nic.features", {"interface": "eth0"}, named)


def rfs(flows: int, **changes: Any) -> dict[str, Any]:
    return setting("nic.rfs", {"interface": "eth0"}, str(flows), **changes)


def shares(host: NicHost) -> list[str]:
    """What each receive queue has."""
    return [file.read_text() for file in sorted((host.path / QUEUES).glob("rx-*/rps_flow_cnt"))]


@each_card
def test_a_ring_is_read_changed_and_taken_back(
    host: NicHost, monkeypatch: pytest.MonkeyPatch, card: Make
) -> None:
    own = card().install(host, monkeypatch)
    steer(host)
    before, had, most = host.tree(), dict(own.ring), own.most_ring["rx"]
    facts = host.ask("facts")["nics"]["eth0"]
    assert facts["driver"] == own.driver
    assert facts["ring"] == {"max": own.most_ring, "current": had}
    assert facts["ring_max"] == own.most_ring
    host.apply(ring(rx=most))
    assert own.ring == {**had, "rx": most}
    inside = [name for name in before if name.startswith(QUEUES)]
    assert {name: host.tree()[name] for name in inside} == {name: before[name] for name in inside}
    assert host.ask("verify", tuning="t", settings=[ring(rx=most)])["verified"]
    host.restore()
    assert own.ring == had
    assert host.tree() == before


@pytest.mark.parametrize(
    ("card", "asked", "gets"),
    [
        (agent_nic.ixgbe, 1001, 1008),
        (agent_nic.i40e, 1001, 1024),
        (agent_nic.ice, 8150, 8160),
        (agent_nic.mlx5, 3000, 4096),
        (agent_nic.bnxt, 1001, 1001),
        (agent_nic.ena, 3000, 2048),
    ],
)
def test_a_plan_shows_what_the_driver_makes_of_a_ring(
    host: NicHost, monkeypatch: pytest.MonkeyPatch, card: Make, asked: int, gets: int
) -> None:
    own = card().install(host, monkeypatch)
    assert host.plan(ring(rx=asked))[0]["wanted"] == {"rx": gets}
    host.apply(ring(rx=asked))
    assert own.ring["rx"] == gets
    assert host.ask("verify", tuning="t", settings=[ring(rx=asked)])["verified"]
    assert host.plan(ring(rx=asked))[0]["status"] == "noop"
    assert not host.apply(ring(rx=asked))["changed"]


def test_a_driver_that_rounds_unforeseen_is_undone(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.virtio().install(host, monkeypatch)
    own.fits = lambda number: number - 1 if number < 256 else number
    before = host.tree()
    error = host.fail("apply", **host.change(ring(rx=128)))
    assert error["message"].startswith("nic.ring:eth0: reads {'rx': 127, 'tx': 256} after")
    assert error["message"].endswith("; undone")
    assert own.ring == {"rx": 256, "tx": 256} and host.tree() == before


@pytest.mark.parametrize(
    ("card", "own", "reason"),
    [
        (agent_nic.veth, ring(rx=1), "ethtool -g eth0: netlink error: Operation not supported"),
        (agent_nic.ena, ring(tx=4096), "eth0 has at most 1024 tx ring"),
        (agent_nic.ena, ring(rx=16384, tx=512), "eth0 has at most 8192 rx ring"),
    ],
)
def test_a_ring_that_the_card_cannot_have_is_refused(
    host: NicHost, monkeypatch: pytest.MonkeyPatch, card: Make, own: dict[str, Any], reason: str
) -> None:
    there = card().install(host, monkeypatch)
    row = host.plan(own)[0]
    assert (row["status"], row["reason"]) == ("unsupported", reason)
    assert host.fail("apply", **host.change(own))["reason"] == "refused"
    assert not there.changes


@pytest.mark.parametrize("value", [{}, {"rx": 0}, {"rx": "1"}, {"rx-mini": 1}, {"rx": True}, "1"])
def test_a_ring_that_is_none_is_a_bad_request(host: NicHost, value: Any) -> None:
    own = setting("nic.ring", {"interface": "eth0"}, value)
    error = host.fail("plan", tuning="t", digest="d", settings=[own])
    assert error["reason"] == "bad_request" and error["field"].startswith("settings[0].value")


def test_a_card_that_is_busy_stays_as_it_is(host: NicHost, monkeypatch: pytest.MonkeyPatch) -> None:
    own = agent_nic.i40e().install(host, monkeypatch)
    own.busy = True
    before = host.tree()
    error = host.fail("apply", **host.change(ring(rx=4096)))
    assert "Device or resource busy" in error["message"] and error["message"].endswith("undone")
    assert host.tree() == before


def test_only_raise_leaves_a_larger_ring(host: NicHost, monkeypatch: pytest.MonkeyPatch) -> None:
    own = agent_nic.ice().install(host, monkeypatch)
    assert host.plan(ring(rx=1024, only="raise"))[0]["status"] == "noop"
    host.apply(ring(rx=1024, tx=1024, only="raise"))
    assert own.ring == {"rx": 2048, "tx": 1024} and own.changes == ["-G tx 1024"]


def test_the_boot_hook_sets_a_ring_again(host: NicHost, monkeypatch: pytest.MonkeyPatch) -> None:
    own = agent_nic.ixgbe().install(host, monkeypatch)
    host.apply(ring(rx=4001))
    own.ring["rx"] = 512
    assert host.boot_hook() == []
    assert own.ring["rx"] == 4008
    host.restore()
    assert own.ring["rx"] == 512
    assert host.leftovers() == {"epoch"}


@each_card
def test_the_catalogues_ring_fits_every_card(
    host: NicHost, monkeypatch: pytest.MonkeyPatch, card: Make
) -> None:
    own = card().install(host, monkeypatch)
    tuning = load_tuning(ROOT / "tunings" / "nic_ring.yaml")
    rendered = encoded(render(tuning, host.ask("facts")))
    full = own.ring["rx"] == own.most_ring["rx"]
    assert host.plan(*rendered)[0]["status"] == ("noop" if full else "change")
    host.apply(*rendered)
    assert own.ring["rx"] == own.most_ring["rx"]


def test_parts_of_two_tunings_are_kept_side_by_side(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.i40e().install(host, monkeypatch)
    host.apply(ring(rx=4096), tuning="a")
    host.apply(ring(tx=1024), tuning="b")
    assert host.ask("verify", tuning="a", settings=[ring(rx=4096)])["verified"]
    own.ring.update(rx=512, tx=512)
    assert host.boot_hook() == []
    assert own.ring == {"rx": 4096, "tx": 1024}
    host.restore("a")
    assert own.ring == {"rx": 512, "tx": 1024}
    host.restore("b")
    assert own.ring == {"rx": 512, "tx": 512}


def test_fewer_channels_leave_the_ring_and_come_back_with_all_steering(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.mlx5().install(host, monkeypatch)
    steer(host)
    before = host.tree()
    host.apply(channels(combined=2), ring(rx=4096))
    assert host.read(f"{QUEUES}/rx-1/rps_flow_cnt") == "2048\n"
    assert own.changes == ["-L combined 2", "-G rx 4096"]
    host.restore()
    assert own.changes[2:] == ["-G rx 1024", "-L combined 6"]
    assert host.tree() == before


def test_channels_that_an_older_agent_changed_come_back(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.i40e().install(host, monkeypatch)
    steer(host)
    before = host.tree()
    host.apply(channels(combined=2))
    journal = host.path / "var/lib/edgetune/tunings/t.json"
    document = json.loads(journal.read_text())
    was = document["entries"][0]["snapshot"]
    document["entries"][0]["snapshot"] = {"channels": was["parts"], "steering": was["steering"]}
    journal.write_text(json.dumps(document))
    host.restore()
    assert own.channels == {"combined": 4}
    assert host.tree() == before


@pytest.mark.parametrize(
    ("card", "value", "changes"),
    [
        (agent_nic.ixgbe, {"rx_usecs": 50}, ["-C rx-usecs 50"]),
        (
            agent_nic.i40e,
            {"adaptive_rx": "off", "rx_usecs": 100, "tx_usecs": 50},
            ["-C adaptive-rx off rx-usecs 100"],
        ),
        (
            agent_nic.ice,
            {"adaptive_rx": "off", "rx_usecs": 20},
            ["-C adaptive-rx off rx-usecs 20"],
        ),
        (
            agent_nic.mlx5,
            {"cqe_mode_tx": "on", "cqe_mode_rx": "off", "rx_frames": 64},
            ["-C cqe-mode-rx off rx-frames 64", "-C cqe-mode-tx on"],
        ),
        (agent_nic.bnxt, {"adaptive_rx": "on", "rx_frames_irq": 2}, ["-C rx-frames-irq 2"]),
        (agent_nic.ena, {"adaptive_rx": "off"}, ["-C adaptive-rx off"]),
        (agent_nic.virtio, {"rx_usecs": 8, "rx_frames": 16}, ["-C rx-usecs 8 rx-frames 16"]),
    ],
)
def test_coalescing_is_changed_where_it_differs_and_taken_back(
    host: NicHost,
    monkeypatch: pytest.MonkeyPatch,
    card: Make,
    value: dict[str, int | str],
    changes: list[str],
) -> None:
    own = card().install(host, monkeypatch)
    steer(host)
    before, had = host.tree(), dict(own.coalesce)
    read = NicCoalesce(Host(str(host.path))).runtime({"interface": "eth0"})
    assert isinstance(read, dict) and {name: read[name] for name in had} == had
    host.apply(coalesce(**value))
    assert own.changes == changes
    assert own.coalesce == {**had, **coalesce(**value)["value"]}
    host.restore()
    assert own.coalesce == had and host.tree() == before


def test_what_a_driver_does_not_know_of_coalescing_is_refused(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.ena().install(host, monkeypatch)
    row = host.plan(coalesce(rx_frames=8, adaptive_tx="on", tx_usecs=1))[0]
    assert row["reason"] == "eth0 has no coalescing adaptive-tx, rx-frames"
    assert row["runtime"] == {"adaptive-tx": "off", "tx-usecs": 64}
    host.apply(coalesce(adaptive_tx="off"))
    assert not own.changes
    agent_nic.veth().install(NicHost(host.path.parent / "other"), monkeypatch)
    reason = host.plan(coalesce(rx_usecs=8))[0]["reason"]
    assert reason == "ethtool -c eth0: netlink error: Operation not supported"


@pytest.mark.parametrize(
    ("asked", "gets", "status"), [(51, 52, "noop"), (55, 56, "noop"), (0, 0, "noop")]
)
def test_a_time_may_be_off_by_what_the_chip_counts_in(
    host: NicHost, monkeypatch: pytest.MonkeyPatch, asked: int, gets: int, status: str
) -> None:
    own = agent_nic.i40e().install(host, monkeypatch)
    own.coalesce.update({"adaptive-rx": "off", "rx-usecs": 2})
    host.apply(coalesce(rx_usecs=asked))
    assert own.coalesce["rx-usecs"] == gets
    assert host.plan(coalesce(rx_usecs=asked))[0]["status"] == status
    assert host.ask("verify", tuning="t", settings=[coalesce(rx_usecs=asked)])["verified"]
    host.restore()
    assert own.coalesce["rx-usecs"] == 2


@pytest.mark.parametrize(
    ("now", "wanted", "same"), [(0, 1, False), (1, 0, False), (1, 2, True), (52, 50, False)]
)
def test_no_waiting_is_not_almost_none(now: int, wanted: int, same: bool) -> None:
    kind = NicCoalesce(Host("/nowhere"))
    assert kind.same({"rx-usecs": now}, {"rx-usecs": wanted}) is same
    assert not kind.same({"rx-frames": 2}, {"rx-frames": 1})


@pytest.mark.parametrize("card", [agent_nic.i40e, agent_nic.ice], ids=lambda make: make.__name__)
def test_a_time_that_the_card_adapts_by_itself_is_not_forced(
    host: NicHost, monkeypatch: pytest.MonkeyPatch, card: Make
) -> None:
    own = card().install(host, monkeypatch)
    had = dict(own.coalesce)
    for value in ({"tx_usecs": 20}, {"tx_usecs": 20, "adaptive_tx": "on", "adaptive_rx": "off"}):
        row = host.plan(coalesce(**value))[0]
        why = "tx-usecs cannot be set while adaptive-tx is on: turn that off as well"
        assert (row["status"], row["reason"]) == ("unsupported", why)
    assert host.plan(coalesce(rx_usecs=50, adaptive_tx="off"))[0]["status"] == "change"
    assert not own.changes
    host.apply(coalesce(adaptive_rx="off", rx_usecs=20))
    host.restore()
    assert own.coalesce == had
    assert own.changes[-2:] == ["-C rx-usecs 50", "-C adaptive-rx on"]


@pytest.mark.parametrize(
    "value",
    [{}, {"rx-usecs": "on"}, {"rx-usecs": -1}, {"adaptive-rx": 1}, {"adaptive-rx": True}, {"x": 1}],
)
def test_coalescing_that_is_none_is_a_bad_request(host: NicHost, value: Any) -> None:
    own = setting("nic.coalesce", {"interface": "eth0"}, value)
    error = host.fail("plan", tuning="t", digest="d", settings=[own])
    assert error["reason"] == "bad_request" and error["field"].startswith("settings[0].value")


def test_only_raise_is_for_numbers(host: NicHost, monkeypatch: pytest.MonkeyPatch) -> None:
    agent_nic.mlx5().install(host, monkeypatch)
    rows = host.plan(dict(coalesce(rx_usecs=4, tx_usecs=16), only="raise"))
    assert rows[0]["wanted"] == {"rx-usecs": 8, "tx-usecs": 16}
    own = dict(coalesce(adaptive_rx="on"), only="raise")
    error = host.fail("plan", tuning="t", digest="d", settings=[own])
    assert error["field"] == "settings[0].only"


def test_the_boot_hook_sets_coalescing_again(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.i40e().install(host, monkeypatch)
    host.apply(coalesce(adaptive_rx="off", rx_usecs=100))
    own.coalesce = dict(own.defaults)
    assert host.boot_hook() == []
    assert (own.coalesce["adaptive-rx"], own.coalesce["rx-usecs"]) == ("off", 100)


def test_coalescing_is_taken_back_live(host: NicHost, monkeypatch: pytest.MonkeyPatch) -> None:
    own = agent_nic.mlx5().install(host, monkeypatch)
    host.apply(coalesce(rx_usecs=100))
    host.ask("restore", epoch=1, tuning="t", live=["nic.coalesce:eth0"])
    assert own.coalesce == own.defaults and host.state() == "restoring"


@pytest.mark.parametrize(
    ("card", "value", "gets", "change"),
    [
        (agent_nic.ixgbe, {"ntuple": "on"}, {"ntuple-filters": "on"}, "-K ntuple-filters on"),
        (
            agent_nic.ixgbe,
            {"gro": "off", "lro": "on"},
            {"generic-receive-offload": "off", "large-receive-offload": "on"},
            "-K generic-receive-offload off large-receive-offload on",
        ),
        (agent_nic.i40e, {"ntuple_filters": "on"}, {"ntuple-filters": "on"}, None),
        (agent_nic.mlx5, {"tso": "off"}, {"tx-tcp-segmentation": "off"}, None),
        (agent_nic.bnxt, {"tx": "off"}, {"tx-checksum-sctp": "off"}, "-K tx-checksumming off"),
        (agent_nic.ena, {"rxhash": "on"}, {"receive-hashing": "on"}, None),
        (agent_nic.virtio, {"gro": "off"}, {"generic-receive-offload": "off"}, None),
    ],
)
def test_features_are_changed_and_taken_back(
    host: NicHost,
    monkeypatch: pytest.MonkeyPatch,
    card: Make,
    value: dict[str, str],
    gets: dict[str, str],
    change: str | None,
) -> None:
    own = card().install(host, monkeypatch)
    own.coalesce.update({"rx-usecs": 99})
    steer(host)
    before, had = host.tree(), state_of(own)
    host.apply(features(**value))
    assert {name: own.features[name] for name in gets} == gets
    assert change is None or own.changes[0] == change
    assert host.tree() == {**before, **{name: host.tree()[name] for name in host.hook_files()}}
    assert own.coalesce == had["coalesce"]
    assert not host.apply(features(**value))["changed"]
    host.restore()
    assert state_of(own) == had and host.tree() == before


def test_a_group_comes_back_member_by_member(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.bnxt().install(host, monkeypatch)
    own.requested["tx-checksum-ipv4"] = "off"
    had, in_force = state_of(own), own.features
    host.apply(features(tx="off"))
    assert "on" not in [own.features[name] for name in agent_nic.SEGMENTATION]
    host.restore()
    assert state_of(own) == had and own.features == in_force


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"ntuple": "on"}, "eth0 has ntuple-filters off, which is fixed"),
        ({"lro": "on", "gro": "off"}, "eth0 has large-receive-offload off, which is fixed"),
        ({"tx": "off"}, "eth0 has tx-checksumming on, which is fixed"),
        ({"nosuch": "on"}, "eth0 has no feature nosuch"),
    ],
)
def test_a_feature_that_is_fixed_or_unknown_is_refused(
    host: NicHost, monkeypatch: pytest.MonkeyPatch, value: dict[str, str], reason: str
) -> None:
    own = agent_nic.ena().install(host, monkeypatch)
    row = host.plan(features(**value))[0]
    assert (row["status"], row["reason"]) == ("unsupported", reason)
    assert host.fail("apply", **host.change(features(**value)))["reason"] == "refused"
    assert not own.changes


def test_a_feature_that_is_fixed_as_wanted_is_no_change(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.ena().install(host, monkeypatch)
    row = host.plan(features(ntuple="off", tx="on"))[0]
    wanted = {"ntuple-filters": "off", "tx-checksumming": "on"}
    assert (row["status"], row["runtime"], row["persistent"]) == ("noop", wanted, wanted)
    assert not own.changes


def test_a_feature_that_waits_for_another_is_off(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.i40e().install(host, monkeypatch)
    own.requested["tx-checksum-ip-generic"] = "off"
    had = state_of(own)
    assert host.plan(features(tso="on"))[0]["runtime"] == {"tcp-segmentation-offload": "off"}
    error = host.fail("apply", **host.change(features(tso="on")))
    assert "Could not change any device features; undone" in error["message"]
    host.apply(features(tso="on", tx_checksum_ip_generic="on"))
    assert own.features["tx-tcp6-segmentation"] == "on"
    host.restore()
    assert state_of(own) == had


@pytest.mark.parametrize(
    "value",
    [{}, {"gro": True}, {"gro": "maybe"}, {"-K": "on"}, {"a b": "on"}, TX_TWICE],
)
def test_features_that_are_none_are_a_bad_request(host: NicHost, value: Any) -> None:
    own = setting("nic.features", {"interface": "eth0"}, value)
    error = host.fail("plan", tuning="t", digest="d", settings=[own])
    assert error["reason"] == "bad_request" and error["field"].startswith("settings[0].value")


def test_the_boot_hook_sets_features_of_two_tunings_again(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.ixgbe().install(host, monkeypatch)
    host.apply(features(ntuple="on"), tuning="a")
    host.apply(features(gro="off"), tuning="b")
    own.requested.update({"ntuple-filters": "off", "generic-receive-offload": "on"})
    assert host.boot_hook() == []
    assert own.features["ntuple-filters"] == "on"
    assert own.features["generic-receive-offload"] == "off"
    host.restore("b")
    assert host.ask("verify", tuning="a", settings=[features(ntuple="on")])["verified"]


def test_fewer_channels_do_not_lose_features(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.ixgbe().install(host, monkeypatch)
    own.requested["ntuple-filters"] = "on"
    host.apply(channels(combined=2))
    assert own.requested["ntuple-filters"] == "on"
    host.restore()
    assert own.requested["ntuple-filters"] == "on"


@pytest.mark.parametrize(
    ("card", "flows", "table", "share"),
    [
        (agent_nic.i40e, 32768, 32768, 8192),
        (agent_nic.mlx5, 32768, 32768, 8192),
        (agent_nic.bnxt, 32768, 32768, 16384),
        (agent_nic.ena, 30000, 32768, 16384),
        (agent_nic.virtio, 4096, 4096, 4096),
        (agent_nic.mlx5, 6, 8, 2),
    ],
)
def test_both_halves_of_rfs_are_set_and_taken_back(
    host: NicHost,
    monkeypatch: pytest.MonkeyPatch,
    card: Make,
    flows: int,
    table: int,
    share: int,
) -> None:
    own = card().install(host, monkeypatch)
    host.write(f"{QUEUES}/rx-0/rps_flow_cnt", "64\n")
    before = host.tree()
    row = host.plan(rfs(flows))[0]
    assert (row["status"], row["runtime"], row["wanted"]) == ("change", "0", str(table))
    host.apply(rfs(flows))
    assert host.read(TABLE) == f"{table}\n"
    assert set(shares(host)) == {f"{share}\n"}
    assert host.plan(rfs(flows))[0]["status"] == "noop"
    assert host.ask("verify", tuning="t", settings=[rfs(flows)])["verified"]
    host.restore()
    assert host.tree() == before and not own.changes


def test_one_half_of_rfs_alone_steers_nothing(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent_nic.i40e().install(host, monkeypatch)
    steer(host)
    assert host.plan(rfs(8192))[0]["runtime"] == "0"
    host.write(TABLE, "8192\n")
    assert host.plan(rfs(8192))[0]["runtime"] == "8192"
    host.write(f"{QUEUES}/rx-3/rps_flow_cnt", "0\n")
    assert host.plan(rfs(8192, only="raise"))[0]["status"] == "change"


def test_rfs_leaves_a_larger_table_to_other_interfaces(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent_nic.i40e().install(host, monkeypatch)
    host.write(TABLE, "65536\n")
    host.apply(rfs(32768))
    assert host.read(TABLE) == "65536\n" and set(shares(host)) == {"8192\n"}
    assert host.plan(rfs(16384, only="raise"))[0]["wanted"] == "32768"
    host.apply(rfs(0), tuning="off")
    assert host.read(TABLE) == "65536\n" and set(shares(host)) == {"0\n"}
    assert host.plan(rfs(0))[0]["runtime"] == "0"
    host.restore("off")
    host.restore()
    assert set(shares(host)) == {"0\n"} and host.read(TABLE) == "65536\n"


@pytest.mark.parametrize(
    ("flows", "reason"),
    [
        (5, "5 flows are too few for 6 receive queues"),
        (999999999, "999999999 flows are more than 536870912, which the kernel takes"),
    ],
)
def test_rfs_that_the_kernel_cannot_do_is_refused(
    host: NicHost, monkeypatch: pytest.MonkeyPatch, flows: int, reason: str
) -> None:
    agent_nic.mlx5().install(host, monkeypatch)
    row = host.plan(rfs(flows))[0]
    assert (row["status"], row["reason"]) == ("unsupported", reason)


def test_flows_are_for_the_queues_that_there_will_be(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent_nic.bnxt().install(host, monkeypatch)
    more, fewer = channels(combined=8), channels(combined=1)
    assert host.plan(rfs(4))[0]["status"] == "change"
    assert host.plan(rfs(4), more)[0]["reason"] == "4 flows are too few for 8 receive queues"
    assert host.plan(rfs(2))[0]["reason"] == "2 flows are too few for 3 receive queues"
    assert host.plan(rfs(2), fewer)[0]["status"] == "change"


def test_a_kernel_or_an_interface_without_rfs_is_not_supported(host: NicHost) -> None:
    lo = setting("nic.rfs", {"interface": "lo"}, "4096")
    assert host.plan(lo)[0]["reason"] == "lo has no receive queues with rps_flow_cnt"
    (host.path / TABLE).unlink()
    assert host.plan(rfs(4096))[0]["reason"] == f"/{TABLE}: No such file or directory"


@pytest.mark.parametrize("value", ["", "-1", "0x10", "4096.0", "many", 4096, {"rx": 1}])
def test_flows_that_are_none_are_a_bad_request(host: NicHost, value: Any) -> None:
    own = setting("nic.rfs", {"interface": "eth0"}, value)
    error = host.fail("plan", tuning="t", digest="d", settings=[own])
    assert (error["reason"], error["field"]) == ("bad_request", "settings[0].value")


def test_tunings_that_share_the_table_are_taken_back_in_any_order(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent_nic.i40e().install(host, monkeypatch)
    for name in ("rps_cpus", "rps_flow_cnt"):
        host.write(f"sys/class/net/eth1/queues/rx-0/{name}", "0\n")
    before = host.tree()
    host.apply(rfs(4096), tuning="a")
    host.apply(setting("nic.rfs", {"interface": "eth1"}, "8192"), tuning="b")
    assert host.read(TABLE) == "8192\n"
    host.restore("a")
    assert host.read(TABLE) == "8192\n"
    host.restore("b")
    assert host.tree() == before


def test_the_boot_hook_sets_rfs_again_after_the_channels(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent_nic.i40e().install(host, monkeypatch)
    host.apply(channels(combined=2), rfs(4096))
    own.channels["combined"] = 4
    own.make_queues()
    host.write(TABLE, "0\n")
    assert host.boot_hook() == []
    assert shares(host) == ["2048\n", "2048\n"] and host.read(TABLE) == "4096\n"


@given(st.integers(1, 200), st.integers(0, 20))
def test_shares_add_up_to_the_flows_that_were_asked_for(queues: int, power: int) -> None:
    flows = 1 << power
    if flows >= queues:
        assert power_below(share_of(flows, queues) * queues) == flows


@pytest.mark.slow
@each_card
@property_of
@given(data=st.data())
def test_whatever_is_done_to_a_card_is_taken_back(
    tmp_path_factory: pytest.TempPathFactory, card: Make, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        host = NicHost(tmp_path_factory.mktemp("nic") / "host")
        own = card().install(host, patch)
        steer(host)
        before = (host.tree(), state_of(own))
        wanted = data.draw(settings_for(own))
        host.apply(*wanted)
        assert not host.apply(*wanted)["changed"]
        assert host.ask("verify", tuning="t", settings=wanted)["verified"]
        host.restore()
        assert (host.tree(), state_of(own)) == before


def state_of(card: Card) -> dict[str, Any]:
    names = ("channels", "ring", "coalesce", "requested")
    return {**{name: dict(getattr(card, name)) for name in names}, "rss": card.rss.state}


def settings_for(card: Card) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Some settings that the card can take."""
    sizes = {side: st.integers(256, most) for side, most in card.most_ring.items()}
    wanted = [
        st.builds(channels, combined=st.integers(1, card.most_channels["combined"])),
        st.fixed_dictionaries({}, optional=sizes).filter(bool).map(lambda own: ring(**own)),
        coalesces_for(card),
        features_for(card),
        st.integers(64, 2**20).map(rfs),
    ]
    some = st.tuples(*(st.none() | own for own in wanted)).filter(any)
    return some.map(lambda chosen: [own for own in chosen if own])


def coalesces_for(card: Card) -> st.SearchStrategy[dict[str, Any]]:
    """Times are set only together with an end of adapting by itself."""
    parts = {
        name: st.just("off") if name.startswith("adaptive") else st.sampled_from(("on", "off"))
        for name, part in card.coalesce.items()
        if part in ("on", "off")
    }
    numbers = {name: st.integers(2, 1000) for name in card.coalesce if name not in parts}
    drawn = st.fixed_dictionaries(parts, optional=numbers).filter(bool)
    return drawn.map(lambda own: setting("nic.coalesce", {"interface": "eth0"}, own))


def features_for(card: Card) -> st.SearchStrategy[dict[str, Any]]:
    """Features that do not wait for each other."""
    free = [name for name in agent_nic.SINGLE if name not in card.fixed]
    drawn = st.dictionaries(st.sampled_from(free), st.sampled_from(("on", "off")), min_size=1)
    whole = st.just({"tcp-segmentation-offload": "off"}) | st.just({})
    both = st.tuples(drawn, whole).map(lambda own: {**own[0], **own[1]})
    return both.map(lambda own: setting("nic.features", {"interface": "eth0"}, own))
