# SPDX-License-Identifier: Apache-2.0
"""How `cpu.service_affinity` is tried."""

from __future__ import annotations

from tests.support.agent_root import setting
from tests.support.trials import ETH0, NGINX, Trial, any_of, of_nginx

TRIAL = Trial(
    target=NGINX,
    taken=["off_nic_irqs", "off_nic_cores"],
    refused=["0-3", ""],
    settings=lambda build: [
        of_nginx(any_of("cpu.service_affinity", NGINX, "off_nic_irqs", "off_nic_cores"))
    ],
    beside=(setting("nic.irq_affinity", ETH0, "0-1"),),
)
