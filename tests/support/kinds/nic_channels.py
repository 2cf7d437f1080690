# SPDX-License-Identifier: Apache-2.0
"""How `nic.channels` is tried."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from tests.support.agent_nic import Card
from tests.support.trials import ETH0, Trial, of_card


def channels(card: Card) -> Mapping[str, Any]:
    both = {name for name in card.most_channels if name != "combined"}
    named = set(card.most_channels) - both or both
    return {name: st.integers(1, card.most_channels[name]) for name in sorted(named)}


TRIAL = Trial(
    target=ETH0,
    taken=[{"rx": 0, "tx": 2}, {"combined": 8}],
    refused=[{}, {"combine": 8}, {"rx": "on"}, {"rx": -1}],
    settings=of_card("nic.channels", channels),
    call="ethtool -L ",
)
