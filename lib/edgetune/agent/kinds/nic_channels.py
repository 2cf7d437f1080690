# SPDX-License-Identifier: Apache-2.0
"""How many queues an interface has."""

from edgetune.agent.kinds import held
from edgetune.agent.kinds.nic import Channels
from edgetune.agent.kinds.nic_coalesce import NicCoalesce
from edgetune.agent.kinds.nic_features import NicFeatures
from edgetune.agent.kinds.nic_irq_affinity import NicIrqAffinity
from edgetune.agent.kinds.nic_ring import NicRing
from edgetune.agent.kinds.nic_rss import NicRss, makes_table, refuse_out_of_step
from edgetune.agent.protocol import Failed, Unsupported
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.nic_channels import KIND
from edgetune.agent.vocabulary.values import Parts, Target


class NicChannels(Channels):
    """How many queues an interface has, such as {"combined": 4}; ethtool tells and changes it."""

    kind = KIND
    below = (NicRing, NicFeatures, NicCoalesce, NicRss, NicIrqAffinity)

    def probe(self, setting: Setting) -> None:
        """Unsupported also when packets are spread, by somebody's choice, over queues that go.

        And where they would go on being spread over queues that are gone.
        """
        super().probe(setting)
        if NicRss(self.host).is_of_virtio(setting.target):
            refuse_out_of_step(self.host, setting.target["interface"])
        spread_anew = any(
            other.kind == NicRss.kind.name
            and other.target == setting.target
            and makes_table(other.value)
            for other in setting.siblings
        )
        needed = 0 if spread_anew else NicRss(self.host).queues_chosen(setting.target)
        left = self.receive_queues(setting)
        if needed > left:
            interface = setting.target["interface"]
            reason = f"the indirection table of {interface} needs {needed} queues, not {left}"
            raise Unsupported(f"{reason}: nic.rss in the same tuning can spread packets anew")

    def put(self, target: Target, wanted: Parts) -> None:
        """The same; the table of RSS gives way where it keeps queues from going.

        A table that was set, and not by default, holds on to its queues, and with bnxt to its
        size. Whoever changes the channels puts it back.
        """
        try:
            super().put(target, wanted)
        except Failed as why:
            if not NicRss(self.host).let_go(target, str(why)):
                raise
            super().put(target, wanted)

    def restore(self, target: Target, snapshot: object) -> None:
        """The same; also from what version 0.2.0 remembered."""
        was = held(snapshot)
        super().restore(target, {"parts": was.get("channels"), "below": {}, **was})
