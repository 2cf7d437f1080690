# SPDX-License-Identifier: Apache-2.0
"""Sample the other PoPs on which a tuning stands."""

from __future__ import annotations

from edgetune.rollout.context import Context
from edgetune.rollout.evidence.sampling import SampleResult, pops_under_way, sample_pops
from edgetune.rollout.hosts.bios import bios_drift
from edgetune.rollout.record.archive import pops_standing
from edgetune.rollout.record.heads import living_heads


def watch_drift(context: Context) -> SampleResult:
    """Take one sample of every host of the other PoPs on which a tuning stands."""
    pops = _pops_standing(context)
    found = sample_pops(context, pops)
    for pop in pops:
        for host, rows in bios_drift(context, pop).items():
            found.drift[host] = [*found.drift.get(host, []), *rows]
    return found.told()


def _pops_standing(context: Context) -> list[str]:
    """Those with a complete rollout, or maybe with one, that the inventory still has, and none
    under way."""
    standing = {head.pop for head in living_heads(context) if head.state == "complete"}
    # Afterwards: what leaves in between is told there already.
    standing |= pops_standing(context)
    known = set(context.known_inventory.pop_names())
    return sorted((standing & known) - set(pops_under_way(context)))
