# SPDX-License-Identifier: Apache-2.0
"""How `nic.xps` is tried."""

from __future__ import annotations

from tests.support.trials import ETH0, Trial, of_queues

TRIAL = Trial(
    target=ETH0,
    taken=["per_queue", "0-3,8", ""],
    refused=["others", "0;1"],
    settings=of_queues("nic.xps", "per_queue"),
    file=".*/xps_cpus",
)
