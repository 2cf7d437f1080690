# SPDX-License-Identifier: Apache-2.0
"""How `unit` is tried."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.support.agent_root import unit
from tests.support.trials import Trial

OFF, ON = {"active": "off", "enabled": "off"}, {"active": "on", "enabled": "on"}

TRIAL = Trial(
    target={"unit": "irqbalance.service"},
    taken=[{"active": "off"}, {"enabled": "on", "active": "on"}],
    refused=[{}, {"active": "masked"}, {"running": "on"}, {"active": 1}],
    settings=lambda build: [
        st.sampled_from([OFF, OFF, ON]).map(lambda own: unit("irqbalance.service", **own))
    ],
    call=r"systemctl (--no-block )?(start|stop|enable|disable) ",
)
