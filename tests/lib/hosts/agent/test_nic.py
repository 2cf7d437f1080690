# SPDX-License-Identifier: Apache-2.0
"""What ethtool changes of a network card, on the cards of several drivers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from edgetune.documents.reading import encoded
from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.kinds.nic_coalesce import NicCoalesce
from edgetune.hosts.agent.kinds.nic_rfs import share_of
from edgetune.rendering import misfits, render
from edgetune.tuning import load_tuning
from edgetune.vocabulary.values import power_below
from tests.support import ROOT, agent_nic
from tests.support.agent_nic import CARDS, QUEUES, TABLE, NicHost, steer
from tests.support.agent_root import setting
from tests.support.cases import cases
from tests.support.examples import examples

HERE = Path(__file__).parent
ETH0 = {"interface": "eth0"}
PARTS = {"channels": "nic.channels", "ring": "nic.ring", "coalesce": "nic.coalesce"}
each_card = pytest.mark.parametrize("card", [make.__name__ for make in CARDS])
property_of = examples(15, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NicHost:
    return NicHost(tmp_path / "host", patch=monkeypatch)


def ring(only: str | None = None, **value: int) -> dict[str, Any]:
    return setting("nic.ring", ETH0, value, only=only)


def channels(**value: int) -> dict[str, Any]:
    return setting("nic.channels", ETH0, value)


def coalesce(only: str | None = None, **value: int | str) -> dict[str, Any]:
    named = {name.replace("_", "-"): part for name, part in value.items()}
    return setting("nic.coalesce", ETH0, named, only=only)


def features(**value: str) -> dict[str, Any]:
    return setting("nic.features", ETH0, {name.replace("_", "-"): on for name, on in value.items()})


def rfs(flows: int, **changes: Any) -> dict[str, Any]:
    return setting("nic.rfs", ETH0, str(flows), **changes)


def shares(host: NicHost) -> list[str]:
    """What each receive queue has."""
    return [file.read_text() for file in sorted((host.path / QUEUES).glob("rx-*/rps_flow_cnt"))]


def queues(host: NicHost) -> dict[str, Any]:
    return {name: own for name, own in host.tree().items() if name.startswith(QUEUES)}


@pytest.mark.parametrize("case", cases(HERE / "cards_take.yaml"))
def test_a_card_takes_what_it_can_and_has_it_back(host: NicHost, case: dict[str, Any]) -> None:
    own = host.insert(case["card"])
    own.coalesce.update(case.get("had", {}))
    steer(host)
    had, steered = own.state, queues(host)
    wanted = [setting(kind, ETH0, value) for kind, value in case["set"].items()]
    rows = host.plan(*wanted)
    assert {row["status"] for row in rows} == {"change"}
    assert [row["wanted"] for row in rows] == case.get("wanted", [row["wanted"] for row in rows])
    with host.applied(*wanted):
        assert own.changes == case.get("changes", own.changes)
        now = {**own.state, "features": own.features}
        for part, gets in case.get("gets", {}).items():
            assert {**now[part], **gets} == now[part]
        others = [part for part, kind in PARTS.items() if kind not in case["set"]]
        assert {part: now[part] for part in others} == {part: had[part] for part in others}
        if not {"nic.channels", "nic.rfs"} & set(case["set"]):
            assert queues(host) == steered
        for name, text in case.get("files", {}).items():
            assert host.read(f"{QUEUES}/{name}") == text
        assert {row["status"] for row in host.plan(*wanted)} == {"noop"}
        done = len(own.changes)
    assert own.state == had
    assert len(own.changes) == done + case.get("back", len(own.changes) - done)


@pytest.mark.parametrize("case", cases(HERE / "cards_refuse.yaml"))
def test_what_a_card_cannot_have_is_refused(host: NicHost, case: dict[str, Any]) -> None:
    own = host.insert(case["card"])
    wanted = [setting(kind, ETH0, value) for kind, value in case["set"].items()]
    assert host.reason(*wanted).startswith(case["why"])
    assert not own.changes


@each_card
def test_the_catalogue_fits_every_card(host: NicHost, card: str) -> None:
    own = host.insert(card)
    had = own.state
    facts = host.ask("facts")["nics"]["eth0"]
    assert (facts["driver"], facts["ring_max"]) == (own.driver, own.most_ring)
    assert facts["ring"] == {"max": own.most_ring, "current": had["ring"]}
    read = NicCoalesce(Host(str(host.path))).runtime(ETH0)
    assert isinstance(read, dict) and {**read, **had["coalesce"]} == read
    for name in ("nic_ring", "nic_coalesce"):
        wanted = encoded(render(load_tuning(ROOT / f"tunings/{name}.yaml"), host.ask("facts")))
        assert wanted or (card, name) == ("virtio", "nic_coalesce")
        if wanted:
            host.apply(*wanted, tuning=name)
    assert own.ring["rx"] == own.most_ring["rx"]
    gathering = (own.coalesce["rx-usecs"], own.coalesce.get("adaptive-rx", "off"))
    assert gathering == ((100, "off") if card != "virtio" else (0, "off"))
    assert own.coalesce.get("rx-frames", 64) == (64 if card != "virtio" else 1)
    host.restore("nic_coalesce")
    host.restore("nic_ring")
    assert own.state == had


def test_the_catalogues_flow_director_is_that_of_ixgbe(host: NicHost) -> None:
    tuning = load_tuning(ROOT / "tunings/flow_director_off.yaml")
    host.insert("i40e")
    assert misfits(tuning, host.ask("facts")) == ["no interface is up and has the driver ixgbe"]
    (host.path / "sys/class/net/eth0/device/driver").unlink()
    own = host.insert("ixgbe")
    host.apply(*encoded(render(tuning, host.ask("facts"))))
    assert own.features["ntuple-filters"] == "on"


def test_a_driver_that_rounds_unforeseen_is_undone(host: NicHost) -> None:
    own = host.insert("virtio")
    own.fits = lambda number: number - 1 if number < 256 else number
    before, had = host.tree(), own.state
    error = host.fail("apply", **host.change(ring(rx=128)))
    assert error["message"].startswith("nic.ring:eth0: reads {'rx': 127, 'tx': 256} after")
    assert error["message"].endswith("; undone")
    assert own.state == had and host.tree() == before


def test_a_card_that_is_busy_stays_as_it_is(host: NicHost) -> None:
    own = host.insert("i40e")
    own.rss.change(["equal", "3"], 4)
    own.busy = True
    before, had = host.tree(), own.state
    for wanted in ([ring(rx=4096)], [channels(combined=2), setting("nic.rss", ETH0, {"equal": 1})]):
        message = host.fail("apply", **host.change(*wanted))["message"]
        assert "Device or resource busy" in message and message.endswith("undone")
        assert host.tree() == before and own.state == had


def test_only_raise_leaves_what_is_larger_and_is_for_numbers(host: NicHost) -> None:
    own = host.insert("ice")
    assert host.plan(ring(rx=1024, only="raise"))[0]["status"] == "noop"
    host.apply(ring(rx=1024, tx=1024, only="raise"))
    assert own.ring == {"rx": 2048, "tx": 1024} and own.changes == ["-G tx 1024"]
    host.insert("mlx5")
    row = host.plan(coalesce("raise", rx_usecs=4, tx_usecs=16))[0]
    assert row["wanted"] == {"rx-usecs": 8, "tx-usecs": 16}
    wrong = [coalesce("raise", adaptive_rx="on")]
    error = host.fail("plan", tuning="t", digest="d", settings=wrong)
    assert error["field"] == "settings[0].only"


def test_the_boot_hook_sets_again_what_two_tunings_have_of_a_card(host: NicHost) -> None:
    """Parts of one kind are kept side by side, and taken back one by one."""
    own = host.insert("ixgbe")
    had = own.state
    a = (ring(rx=4001), features(ntuple="on"), coalesce(rx_usecs=100))
    b = (ring(tx=1024), features(gro="off"))
    host.apply(*a, tuning="a")
    host.apply(*b, tuning="b")
    assert host.verifies(*a, tuning="a")
    own.ring.update(had["ring"])
    own.requested.update(had["requested"])
    own.coalesce.update(had["coalesce"])
    assert host.boot_hook() == []
    assert own.ring == {"rx": 4008, "tx": 1024} and own.coalesce["rx-usecs"] == 100
    assert own.features["ntuple-filters"] == "on"
    assert own.features["generic-receive-offload"] == "off"
    host.restore("b")
    assert host.verifies(*a, tuning="a") and own.ring == {"rx": 4008, "tx": 512}
    host.restore("a")
    assert own.state == had and host.leftovers() == {"epoch"}


def test_channels_that_an_older_agent_changed_come_back(host: NicHost) -> None:
    own = host.insert("i40e")
    steer(host)
    before = host.tree()
    host.apply(channels(combined=2))
    (entry,) = host.journal()["entries"]
    was = entry["snapshot"]
    old = {"channels": was["parts"], "steering": was["steering"]}
    host.note(entries=[{**entry, "snapshot": old}])
    host.restore()
    assert own.channels == {"combined": 4} and host.tree() == before


def test_coalescing_that_is_off_already_may_be_asked_of_a_driver_without(host: NicHost) -> None:
    own = host.insert("ena")
    row = host.plan(coalesce(rx_frames=8, adaptive_tx="on", tx_usecs=1))[0]
    assert row["runtime"] == {"adaptive-tx": "off", "tx-usecs": 64}
    host.apply(coalesce(adaptive_tx="off"))
    assert not own.changes


@pytest.mark.parametrize(
    ("now", "wanted", "same"), [(0, 1, False), (1, 0, False), (1, 2, True), (52, 50, False)]
)
def test_no_waiting_is_not_almost_none(now: int, wanted: int, same: bool) -> None:
    kind = NicCoalesce(Host("/nowhere"))
    assert kind.same({"rx-usecs": now}, {"rx-usecs": wanted}) is same
    assert not kind.same({"rx-frames": 2}, {"rx-frames": 1})


@pytest.mark.parametrize("card", ["i40e", "ice"])
def test_a_time_comes_back_before_the_card_adapts_it_by_itself(host: NicHost, card: str) -> None:
    own = host.insert(card)
    assert host.plan(coalesce(rx_usecs=50, adaptive_tx="off"))[0]["status"] == "change"
    with host.applied(coalesce(adaptive_rx="off", rx_usecs=20)):
        pass
    assert own.changes[-2:] == ["-C rx-usecs 50", "-C adaptive-rx on"]


def test_coalescing_is_taken_back_live(host: NicHost) -> None:
    own = host.insert("mlx5")
    host.apply(coalesce(rx_usecs=100))
    host.ask("restore", epoch=1, tuning="t", live=["nic.coalesce:eth0"])
    assert own.coalesce == own.defaults and host.state() == "restoring"


def test_a_group_comes_back_member_by_member(host: NicHost) -> None:
    own = host.insert("bnxt")
    own.requested["tx-checksum-ipv4"] = "off"
    had, in_force = own.state, own.features
    with host.applied(features(tx="off")):
        assert "on" not in [own.features[name] for name in agent_nic.SEGMENTATION]
    assert own.state == had and own.features == in_force


def test_a_feature_that_is_fixed_as_wanted_is_no_change(host: NicHost) -> None:
    own = host.insert("ena")
    row = host.plan(features(ntuple="off", tx="on"))[0]
    wanted = {"ntuple-filters": "off", "tx-checksumming": "on"}
    assert (row["status"], row["runtime"], row["persistent"]) == ("noop", wanted, wanted)
    assert host.plan(features(ntuple="off", gro="off"))[0]["status"] == "change"
    assert not own.changes


def test_a_feature_that_waits_for_another_is_off(host: NicHost) -> None:
    own = host.insert("i40e")
    own.requested["tx-checksum-ip-generic"] = "off"
    had = own.state
    assert host.plan(features(tso="on"))[0]["runtime"] == {"tcp-segmentation-offload": "off"}
    error = host.fail("apply", **host.change(features(tso="on")))
    assert "Could not change any device features; undone" in error["message"]
    with host.applied(features(tso="on", tx_checksum_ip_generic="on")):
        assert own.features["tx-tcp6-segmentation"] == "on"
    assert own.state == had


def test_fewer_channels_do_not_lose_features(host: NicHost) -> None:
    own = host.insert("ixgbe")
    own.requested["ntuple-filters"] = "on"
    with host.applied(channels(combined=2)):
        assert own.requested["ntuple-filters"] == "on"
    assert own.requested["ntuple-filters"] == "on"


def test_one_half_of_rfs_alone_steers_nothing(host: NicHost) -> None:
    host.insert("i40e")
    steer(host)
    assert host.plan(rfs(8192))[0]["runtime"] == "0"
    host.write(TABLE, "8192\n")
    assert host.plan(rfs(8192))[0]["runtime"] == "8192"
    host.write(f"{QUEUES}/rx-3/rps_flow_cnt", "0\n")
    assert host.plan(rfs(8192, only="raise"))[0]["status"] == "change"


def test_rfs_leaves_a_larger_table_to_other_interfaces(host: NicHost) -> None:
    host.insert("i40e")
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


def test_flows_are_for_the_queues_that_there_will_be(host: NicHost) -> None:
    host.insert("bnxt")
    assert host.plan(rfs(4))[0]["status"] == "change"
    assert host.reason(rfs(2)) == "2 flows are too few for 3 receive queues"
    assert host.plan(rfs(2), channels(combined=1))[0]["status"] == "change"


def test_a_kernel_or_an_interface_without_rfs_is_not_supported(host: NicHost) -> None:
    lo = setting("nic.rfs", {"interface": "lo"}, "4096")
    assert host.reason(lo) == "lo has no receive queues with rps_flow_cnt"
    (host.path / TABLE).unlink()
    assert host.reason(rfs(4096)) == f"/{TABLE}: No such file or directory"


def test_tunings_that_share_the_table_are_taken_back_in_any_order(host: NicHost) -> None:
    host.insert("i40e")
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


def test_the_boot_hook_sets_rfs_again_after_the_channels(host: NicHost) -> None:
    own = host.insert("i40e")
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
