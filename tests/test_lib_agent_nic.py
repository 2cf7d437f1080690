# SPDX-License-Identifier: Apache-2.0
"""What ethtool changes of a network card, on the cards of several drivers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgetune.hosts import agent
from tests import agent_nic
from tests.agent_nic import CARDS, QUEUES, Card
from tests.agent_root import AgentRoot, setting

each_card = pytest.mark.parametrize("card", CARDS, ids=lambda make: make.__name__)
property_of = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
Make = Callable[[], Card]


class NicHost(AgentRoot):
    """A host whose agent is asked in this process, where ethtool is a `Card`."""

    def send(self, document: bytes) -> dict[str, Any]:
        reply: dict[str, Any] = agent.answer(str(self.path), document)
        json.dumps(reply)
        return reply

    def boot_hook(self) -> list[str]:
        """Boot anew and run the hook."""
        self.new_boot_id()
        return agent.boot(agent.Host(str(self.path)))


@pytest.fixture
def host(tmp_path: Path) -> NicHost:
    return NicHost(tmp_path / "host")


def ring(only: str | None = None, **value: int) -> dict[str, Any]:
    return setting("nic.ring", {"interface": "eth0"}, value, only=only)


def channels(**value: int) -> dict[str, Any]:
    return setting("nic.channels", {"interface": "eth0"}, value)


def steer(host: NicHost) -> None:
    """Let something steer packets to every queue there is."""
    for path in (host.path / QUEUES).glob("*/*"):
        path.write_text("3\n" if path.name.endswith("cpus") else "2048\n")


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
    assert "b was applied later" in host.fail("restore", epoch=1, tuning="a")["message"]
    host.restore("b")
    assert own.ring == {"rx": 4096, "tx": 512}
    host.restore("a")
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
    return {"channels": dict(card.channels), "ring": dict(card.ring)}


def settings_for(card: Card) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Some settings that the card can take."""
    sizes = {side: st.integers(256, most) for side, most in card.most_ring.items()}
    wanted = [
        st.builds(channels, combined=st.integers(1, card.most_channels["combined"])),
        st.fixed_dictionaries({}, optional=sizes).filter(bool).map(lambda own: ring(**own)),
    ]
    some = st.tuples(*(st.none() | own for own in wanted)).filter(any)
    return some.map(lambda chosen: [own for own in chosen if own])
