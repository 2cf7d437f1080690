# SPDX-License-Identifier: Apache-2.0
"""How `nic.rps` is tried."""

from __future__ import annotations

from tests.support.trials import ETH0, Trial, of_queues

TRIAL = Trial(
    target=ETH0,
    taken=["others", "0-3,8", ""],
    refused=["per_queue", "0;1"],
    settings=of_queues("nic.rps", "others"),
    file=".*/rps_cpus",
)
