# SPDX-License-Identifier: Apache-2.0
"""How `nic.rfs` is tried."""

from __future__ import annotations

from tests.support.agent_nic import TABLE
from tests.support.trials import ETH0, Trial, any_of

TRIAL = Trial(
    target=ETH0,
    taken=["0", "32768"],
    refused=["many", "-1"],
    settings=lambda build: [any_of("nic.rfs", ETH0, "0", "3", "4096", "30000", "32768")],
    files=lambda build: {TABLE: "0\n"},
    file=".*/rps_flow_cnt",
)
