# SPDX-License-Identifier: Apache-2.0
"""Sample the other PoPs on which a tuning stands."""

from __future__ import annotations

from edgetune.rollout.context import Context
from edgetune.rollout.evidence.sampling import SampleResult, pops_under_way, sample_pops
from edgetune.rollout.hosts.bios import bios_drift
from edgetune.rollout.record.archive import what_stands
from edgetune.rollout.record.heads import read_living_heads


def watch_drift(context: Context) -> SampleResult:
    """Take one sample of every host of the other PoPs on which a tuning stands."""
    known = {*context.known_inventory.pop_names()} - {*pops_under_way(context)}
    pops = sorted(known.intersection(what_stands(context, *read_living_heads(context))))
    found = sample_pops(context, pops)
    for pop in pops:
        for host, rows in bios_drift(context, pop).items():
            found.drift[host] = [*found.drift.get(host, []), *rows]
    return found.result()
