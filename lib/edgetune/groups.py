# SPDX-License-Identifier: Apache-2.0
"""Which hosts are the test group, and which the control group."""

from __future__ import annotations

import random
from collections.abc import Sequence

from edgetune.documents.options import Options
from edgetune.documents.plan import Groups
from edgetune.inventory import Pop


def draw_groups(pop: Pop, touched: Sequence[str], options: Options) -> dict[str, Groups]:
    """The groups of each hardware, drawn among the ``touched`` hosts by the seed of the options."""
    by_hardware: dict[str, list[str]] = {}
    for name in touched:
        by_hardware.setdefault(pop.host(name).hardware or "any", []).append(name)
    dice = random.Random(options.seed)
    strata = {}
    for hardware in sorted(by_hardware):
        hosts = sorted(by_hardware[hardware])
        dice.shuffle(hosts)
        size = test_hosts(len(hosts), options)
        strata[hardware] = Groups(hosts[:size], hosts[size:])
    return strata


def test_hosts(hosts: int, options: Options) -> int:
    """How many of so many hosts of one hardware form the test group."""
    return min(max(round(options.test_fraction * hosts), 1), hosts - 1)
