# SPDX-License-Identifier: Apache-2.0
"""How many queues an interface has."""

from typing import Any

from edgetune.hosts.agent.kinds.nic import NicCounts
from edgetune.hosts.agent.kinds.nic_coalesce import NicCoalesce
from edgetune.hosts.agent.kinds.nic_features import NicFeatures
from edgetune.hosts.agent.kinds.nic_ring import NicRing
from edgetune.hosts.agent.values import Target


class NicChannels(NicCounts):
    """How many queues an interface has, such as {"combined": 4}; ethtool tells and changes it."""

    name = "nic.channels"
    names = ("rx", "tx", "combined")
    show = "-l"
    change = "-L"
    what = "channels"
    below = (NicRing, NicFeatures, NicCoalesce)

    def restore(self, target: Target, snapshot: Any) -> None:
        """The same; also from what version 0.2.0 remembered."""
        old = {"parts": snapshot.get("channels"), "below": {}}
        super().restore(target, {**old, **snapshot})
