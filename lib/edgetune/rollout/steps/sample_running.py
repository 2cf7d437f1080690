# SPDX-License-Identifier: Apache-2.0
"""Sample the PoPs with a rollout under way."""

from __future__ import annotations

from edgetune.rollout.context import Context
from edgetune.rollout.evidence import sampling
from edgetune.rollout.evidence.sampling import SampleResult, SweepOfRule


def sample_running(context: Context) -> SampleResult:
    """Take one sample of every host of every PoP with a rollout under way, or soon to begin in a
    campaign, and say so by PoP."""
    pops = sampling.pops_under_way(context)
    return sampling.sample_pops(context, pops, SweepOfRule(context, pops)).result()
