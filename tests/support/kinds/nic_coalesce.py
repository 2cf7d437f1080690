# SPDX-License-Identifier: Apache-2.0
"""How `nic.coalesce` is tried."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from edgetune.vocabulary.kinds.nic_coalesce import NUMBERS, SWITCHES
from tests.support.agent_nic import Card
from tests.support.trials import ETH0, Trial, of_card


def gathering(card: Card) -> Mapping[str, Any]:
    switch, size = st.sampled_from(("on", "off")), st.integers(2, 1000)
    return {name: switch if part in ("on", "off") else size for name, part in card.coalesce.items()}


TRIAL = Trial(
    target=ETH0,
    taken=[*({name: "off"} for name in SWITCHES), *({name: 50} for name in NUMBERS)],
    refused=[{}, {"adaptive-rx": 1}, {"rx-usecs": "on"}, {"rx-usec": 1}],
    settings=of_card("nic.coalesce", gathering, "rx-usecs"),
    call="ethtool -C ",
)
