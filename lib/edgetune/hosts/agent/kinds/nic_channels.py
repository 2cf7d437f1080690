# SPDX-License-Identifier: Apache-2.0
"""How many queues an interface has."""

from typing import TYPE_CHECKING, Any, Optional

from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.kinds.nic import NicCounts
from edgetune.hosts.agent.kinds.nic_coalesce import NicCoalesce
from edgetune.hosts.agent.kinds.nic_features import NicFeatures
from edgetune.hosts.agent.kinds.nic_irq_affinity import NicIrqAffinity
from edgetune.hosts.agent.kinds.nic_ring import NicRing
from edgetune.hosts.agent.kinds.nic_rss import NicRss, makes_table
from edgetune.hosts.agent.protocol import Failed, Unsupported
from edgetune.vocabulary.kinds.nic_channels import KIND, TYPES
from edgetune.vocabulary.values import Parts, Target, bounded, counts

if TYPE_CHECKING:
    from edgetune.hosts.agent.settings import Setting


class NicChannels(NicCounts):
    """How many queues an interface has, such as {"combined": 4}; ethtool tells and changes it."""

    kind = KIND
    names = TYPES
    show = "-l"
    change = "-L"
    what = "channels"
    below = (NicRing, NicFeatures, NicCoalesce, NicRss, NicIrqAffinity)

    def probe(self, setting: "Setting") -> None:
        """Unsupported also when packets are spread, by somebody's choice, over queues that go."""
        super().probe(setting)
        spread_anew = any(
            other.kind == NicRss.kind.name
            and other.target == setting.target
            and makes_table(other.value)
            for other in setting.beside
        )
        needed = 0 if spread_anew else NicRss(self.host).queues_chosen(setting.target)
        left = self.receive_queues(setting)
        if needed > left:
            interface = setting.target["interface"]
            reason = f"the indirection table of {interface} needs {needed} queues, not {left}"
            raise Unsupported(f"{reason}: nic.rss in the same tuning can spread packets anew")

    def receive_queues(self, setting: "Setting") -> int:
        """How many receive queues there will be."""
        now = self.runtime(setting.target)
        then = {**counts(now), **counts(bounded(setting.only, now, setting.value))}
        return then.get("rx", 0) + then.get("combined", 0)

    def put(self, target: Target, wanted: Parts) -> None:
        """The same; the table of RSS gives way where it keeps queues from going.

        A table that was set, and not by default, holds on to its queues, and with bnxt to its
        size. Whoever changes the channels puts it back.
        """
        try:
            super().put(target, wanted)
        except Failed:
            if not NicRss(self.host).let_go(target):
                raise
            super().put(target, wanted)

    def restore(self, target: Target, snapshot: Any) -> None:
        """The same; also from what version 0.2.0 remembered."""
        old = {"parts": snapshot.get("channels"), "below": {}}
        super().restore(target, {**old, **snapshot})


def queues_planned(host: Host, setting: "Setting") -> Optional[int]:
    """The receive queues that the same tuning gives an interface; None where it says nothing."""
    for other in setting.beside:
        if other.kind == KIND.name and other.target == setting.target:
            return NicChannels(host).receive_queues(other)
    return None
