# SPDX-License-Identifier: Apache-2.0
"""What ethtool changes of a network card, on the cards of several drivers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.documents.reading import encoded
from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.kinds.nic_coalesce import NicCoalesce
from edgetune.hosts.agent.kinds.nic_rfs import share_of
from edgetune.rendering import misfits, render
from edgetune.tuning import load_tuning
from edgetune.vocabulary.values import power_below
from tests.support import ROOT
from tests.support.agent_nic import CARDS, NicHost

ETH0 = {"interface": "eth0"}
each_card = pytest.mark.parametrize("card", [make.__name__ for make in CARDS])


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NicHost:
    return NicHost(tmp_path / "host", patch=monkeypatch)


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


@pytest.mark.parametrize(
    ("now", "wanted", "same"), [(0, 1, False), (1, 0, False), (1, 2, True), (52, 50, False)]
)
def test_no_waiting_is_not_almost_none(now: int, wanted: int, same: bool) -> None:
    kind = NicCoalesce(Host("/nowhere"))
    assert kind.same({"rx-usecs": now}, {"rx-usecs": wanted}) is same
    assert not kind.same({"rx-frames": 2}, {"rx-frames": 1})


@given(st.integers(1, 200), st.integers(0, 20))
def test_shares_add_up_to_the_flows_that_were_asked_for(queues: int, power: int) -> None:
    flows = 1 << power
    if flows >= queues:
        assert power_below(share_of(flows, queues) * queues) == flows
