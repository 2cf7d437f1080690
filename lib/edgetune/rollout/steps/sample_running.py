# SPDX-License-Identifier: Apache-2.0
"""Sample the PoPs with a rollout under way."""

from __future__ import annotations

from edgetune.base import clock
from edgetune.rollout.context import Context
from edgetune.rollout.evidence import sampling
from edgetune.rollout.evidence.sampling import SampleResult
from edgetune.rollout.store.heartbeat import Heartbeat


def sample_running(context: Context) -> SampleResult:
    """Take one sample of every host of every PoP with a rollout under way, or soon to begin in a
    campaign, and say so by PoP."""
    began, pops = clock.wall(), sampling.pops_under_way(context)
    found = sampling.sample_pops(context, pops)
    for pop in pops:
        context.heartbeats.beat(sampling.sampled_by_rule(pop), Heartbeat(began))
    return found.told()
