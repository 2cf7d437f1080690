# SPDX-License-Identifier: Apache-2.0
"""Flows steered to the CPU that reads them (RFS)."""

from typing import Dict

from edgetune.agent.kinds import held, texts
from edgetune.agent.kinds.nic import NicHandler, queues_planned
from edgetune.agent.protocol import Unsupported
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.nic_rfs import KIND, TABLE
from edgetune.agent.vocabulary.values import Target, Value, power_above, power_below


class NicRfs(NicHandler):
    """How many flows are steered to the CPU that reads them (RFS), in both halves.

    The value is a number of flows, a power of two as the kernel has it: the host's table of
    sockets has room for so many at least (other interfaces share it, so it never shrinks), and
    each receive queue for its share. 0 switches it off on the interface.
    """

    kind = KIND

    def rounded(self, target: Target, value: Value) -> Value:
        """The kernel rounds up."""
        return str(power_above(int(str(value))))

    def probe(self, setting: Setting) -> None:
        """Unsupported with fewer flows than queues, or more than the kernel's tables take."""
        present = len(self._queues(setting.target))
        flows, queues = int(str(setting.value)), queues_planned(self.host, setting) or present
        if 0 < flows < queues:
            raise Unsupported(f"{flows} flows are too few for {queues} receive queues")
        if flows > 1 << 29:
            raise Unsupported(f"{flows} flows are more than {1 << 29}, which the kernel takes")

    def runtime(self, target: Target) -> Value:
        """The flows that there is room for, in the table and in the queue with the fewest."""
        queues = [int(text) for text in self._queues(target).values()]
        in_queues = power_below(min(queues) * len(queues))
        return str(min(in_queues, self._entries()))

    def snapshot(self, target: Target) -> Dict[str, object]:
        return {"table": self.text(TABLE), "queues": self._queues(target)}

    def apply(self, target: Target, value: Value) -> None:
        """The table first: queues without one steer nothing."""
        flows, queues = int(str(value)), self._queues(target)
        if flows > self._entries():
            self.host.write_attribute(TABLE, f"{flows}\n")
        share = share_of(flows, len(queues))
        self.restore_steering(target, dict.fromkeys(queues, f"{share}\n"))

    def restore(self, target: Target, snapshot: object) -> None:
        was = held(snapshot)
        self.restore_steering(target, texts(was["queues"]))
        if self.text(TABLE) != was["table"]:
            self.host.write_attribute(TABLE, str(was["table"]))

    def _queues(self, target: Target) -> Dict[str, str]:
        counts = self.read_steering(target, ("rps_flow_cnt",))
        if not counts:
            raise Unsupported(f"{target['interface']} has no receive queues with rps_flow_cnt")
        return counts

    def _entries(self) -> int:
        return int(self.text(TABLE))


def share_of(flows: int, queues: int) -> int:
    """What each queue must have room for; a power of two, as the kernel has it."""
    return power_above(-(-flows // queues))
