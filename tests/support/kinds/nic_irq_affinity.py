# SPDX-License-Identifier: Apache-2.0
"""How `nic.irq_affinity` is tried."""

from __future__ import annotations

from edgetune.vocabulary.kinds.nic_irq_affinity import POLICIES
from tests.support.trials import ETH0, Trial, of_queues

TRIAL = Trial(
    target=ETH0,
    taken=[*POLICIES, "0-3,8", "0 2"],
    refused=["wrong", "", "0-x", "3-1"],
    settings=of_queues("nic.irq_affinity", *POLICIES),
    file="/proc/irq/",
)
