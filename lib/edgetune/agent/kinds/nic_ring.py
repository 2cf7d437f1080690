# SPDX-License-Identifier: Apache-2.0
"""How many packets the rings of an interface hold."""

from typing import Callable, Dict, Optional

from edgetune.agent.kinds.nic import NicCounts, driver_of
from edgetune.agent.kinds.nic_coalesce import NicCoalesce
from edgetune.agent.kinds.nic_features import NicFeatures
from edgetune.agent.kinds.nic_irq_affinity import NicIrqAffinity
from edgetune.agent.kinds.nic_rss import NicRss
from edgetune.agent.vocabulary.kinds.nic_ring import KIND, SIDES
from edgetune.agent.vocabulary.values import (
    Target,
    Value,
    counts,
    multiple_above,
    power_above,
    power_below,
)


class NicRing(NicCounts):
    """How many packets the rings of each queue hold; the link goes down while that changes."""

    kind = KIND
    names = SIDES
    show = "-g"
    change = "-G"
    what = "ring"
    below = (NicFeatures, NicCoalesce, NicRss, NicIrqAffinity)
    # As their set_ringparam() does; every other driver takes a number as it is, or refuses it.
    rounding: Dict[Optional[str], Callable[[int], int]] = {
        "igb": multiple_above(8),
        "ixgbe": multiple_above(8),
        "i40e": multiple_above(32),
        "iavf": multiple_above(32),
        "ice": multiple_above(32),
        "mlx4_core": power_above,
        "mlx5_core": power_above,
        "ena": power_below,
    }

    def rounded(self, target: Target, value: Value) -> Value:
        """The number that the driver makes of it."""
        to_fit = self.rounding.get(driver_of(self.host, target["interface"]), int)
        return {name: to_fit(count) for name, count in counts(value).items()}
