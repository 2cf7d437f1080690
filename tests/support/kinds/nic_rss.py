# SPDX-License-Identifier: Apache-2.0
"""How `nic.rss` is tried."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from edgetune.vocabulary.kinds.nic_rss import FLOWS
from tests.support.agent_nic import Card
from tests.support.trials import ETH0, Trial, of_card


def spreading(card: Card) -> Mapping[str, Any]:
    other_key = st.just(card.rss.key[:-2] + "ee")
    return {
        "equal": st.integers(1, max(min(card.rings, card.rss.reach), 1)),
        "hfunc": st.sampled_from(card.rss.functions),
        # Nothing tells of a driver that refuses another one, as bnxt does.
        **({} if card.rss.key_fixed or not card.rss.key else {"key": other_key}),
        **{flow: st.sampled_from(("sd", "sdfn")) for flow in card.rss.free},
    }


TRIAL = Trial(
    target=ETH0,
    taken=[
        {"equal": 4},
        {"weight": "6 2", "hfunc": "xor"},
        {"key": "6d:5A", "hfunc": "toeplitz"},
        {"hfunc": "crc32"},
        *({flow: "sdfn"} for flow in FLOWS),
    ],
    refused=[
        *({}, {"equals": 4}, {"equal": 0}, {"weight": "6"}, {"hfunc": "md5"}, {"tcp4": "x"}),
        *({"weight": "0 0"}, {"equal": 4, "weight": "6 2"}),
    ],
    settings=of_card("nic.rss", spreading),
    call="ethtool -[XN] ",
)
