# SPDX-License-Identifier: Apache-2.0
"""What ethtool changes of a network card, and how packets are spread over its queues."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetune.agent.host import Host
from edgetune.agent.kinds.nic_coalesce import NicCoalesce
from edgetune.agent.kinds.nic_rfs import share_of
from edgetune.agent.kinds.nic_rss import NicRss, can_be_written, hashed_fields, spread, words_for
from edgetune.agent.vocabulary.values import power_below
from edgetune.base.documents.reading import encoded
from edgetune.intent.rendering import render
from edgetune.intent.tuning import load_tuning
from tests.support import ROOT
from tests.support.agent_nic import CARDS, NicHost, make_card
from tests.support.agent_root import setting

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
    same = {"hfunc": "toeplitz"}
    assert host.plan(setting("nic.rss", ETH0, same))[0]["runtime"] == same


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
