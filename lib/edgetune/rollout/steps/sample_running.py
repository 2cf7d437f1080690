# SPDX-License-Identifier: Apache-2.0
"""Sample the PoPs with a rollout under way."""

from __future__ import annotations

import time
from typing import Any

from edgetune.rollout.heartbeat import Heartbeat
from edgetune.rollout.sampling import pops_under_way, sample_pops, sampled_by_rule
from edgetune.rollout.site import Site


def sample_running(site: Site) -> dict[str, Any]:
    """Take one sample of every host of every PoP with a rollout under way, and say so by PoP."""
    began, pops = time.time(), pops_under_way(site)
    found = sample_pops(site, pops)
    for pop in pops:
        site.heartbeats.beat(sampled_by_rule(pop), Heartbeat(began))
    return found.told()
