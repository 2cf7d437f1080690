# SPDX-License-Identifier: Apache-2.0
"""How `nic.ring` is tried."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.support.trials import ETH0, Trial, of_card

TRIAL = Trial(
    target=ETH0,
    taken=[{"rx": 4096}, {"tx": 1}],
    refused=[{}, {"combined": 4}, {"rx": 0}],
    settings=of_card(
        "nic.ring",
        lambda card: {side: st.integers(64, most) for side, most in card.most_ring.items()},
    ),
    call="ethtool -G ",
)
