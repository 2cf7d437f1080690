# SPDX-License-Identifier: Apache-2.0
"""Which hosts are the test group, and which the control group."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from edgetune.documents.options import Options
from edgetune.documents.plan import Groups, assignments
from edgetune.inventory import Pop


def draw_groups(
    pop: Pop,
    touched: Sequence[str],
    options: Options,
    kernels: Mapping[str, str],
    systems: Mapping[str, str],
) -> dict[str, Groups]:
    """The groups of each stratum, drawn among the ``touched`` hosts by the seed of the options.

    A stratum is of one hardware and operating system, and of one kernel where ``kernels`` (by host)
    differ within it. Strata of kernels make a comparison sharper, and a permutation test holds
    without them. So a PoP that they leave too few ways to be drawn in has none of these. Hosts with
    different ``systems`` (by host) are never compared: what they count is not the same.
    """
    strata = _drawn(pop, touched, options, systems, kernels)
    if 1 / assignments(strata) <= min(options.alpha_benefit, options.alpha_harm):
        return strata
    return _drawn(pop, touched, options, systems)


def _drawn(
    pop: Pop, touched: Sequence[str], options: Options, *facts: Mapping[str, str]
) -> dict[str, Groups]:
    found = _by_stratum(pop, touched, facts)
    dice = random.Random(options.seed)
    strata = {}
    for stratum in sorted(found):
        hosts = sorted(found[stratum])
        dice.shuffle(hosts)
        size = test_hosts(len(hosts), options)
        strata[stratum] = Groups(hosts[:size], hosts[size:])
    return strata


def _by_stratum(
    pop: Pop, touched: Sequence[str], facts: Sequence[Mapping[str, str]]
) -> dict[str, list[str]]:
    """The hosts that are compared with each other, by what they have in common."""
    alike: dict[str, list[str]] = {}
    for name in touched:
        alike.setdefault(pop.host(name).hardware, []).append(name)
    found: dict[str, list[str]] = {}
    for hardware, hosts in alike.items():
        # A fact that all of them share does not name a stratum.
        apart = [known for known in facts if len({known.get(host, "") for host in hosts}) > 1]
        for host in hosts:
            common = [hardware or "any", *(known.get(host, "") for known in apart)]
            found.setdefault(", ".join(filter(None, common)), []).append(host)
    return found


def test_hosts(hosts: int, options: Options) -> int:
    """How many of so many hosts of one hardware form the test group."""
    return min(max(round(options.test_fraction * hosts), 1), hosts - 1)
