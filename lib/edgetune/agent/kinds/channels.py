# SPDX-License-Identifier: Apache-2.0
"""How many queues an interface has, and will have."""

from typing import Optional

from edgetune.agent.host import Host
from edgetune.agent.kinds.ethtool_netlink import channels
from edgetune.agent.kinds.nic import NicCounts
from edgetune.agent.vocabulary.kinds.nic_channels import KIND, TYPES
from edgetune.agent.vocabulary.setting import Setting
from edgetune.agent.vocabulary.values import bounded, counts


class Channels(NicCounts):
    """What is read of channels; what a change of them resets is for NicChannels to know."""

    names = TYPES
    show = "-l"
    change = "-L"
    what = "channels"
    of_kernel = staticmethod(channels)

    def receive_queues(self, setting: Setting) -> int:
        """How many receive queues there will be."""
        now = self.runtime(setting.target)
        then = {**counts(now), **counts(bounded(setting.only, now, setting.value))}
        return then.get("rx", 0) + then.get("combined", 0)


def queues_planned(host: Host, setting: Setting) -> Optional[int]:
    """The receive queues that the same tuning gives an interface; None where it says nothing."""
    for other in setting.siblings:
        if other.kind == KIND.name and other.target == setting.target:
            return Channels(host).receive_queues(other)
    return None
