# SPDX-License-Identifier: Apache-2.0
"""How `nic.features` is tried."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from tests.support.agent_nic import SINGLE, Card
from tests.support.trials import ETH0, Trial, of_card


def features(card: Card) -> Mapping[str, Any]:
    return {
        name: st.sampled_from(("on", "off"))
        for name in (*SINGLE, "tcp-segmentation-offload")
        if name not in card.fixed or name == "ntuple-filters"
    }


TRIAL = Trial(
    target=ETH0,
    taken=[{"ntuple": "on"}, {"large-receive-offload": "off"}],
    refused=[{}, {"ntuple": 1}, {"N tuple": "on"}, {"ntuple": "on", "ntuple-filters": "on"}],
    settings=of_card("nic.features", features),
    call="ethtool -K ",
)
