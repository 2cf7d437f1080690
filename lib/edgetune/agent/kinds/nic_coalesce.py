# SPDX-License-Identifier: Apache-2.0
"""How long an interface gathers packets before it interrupts."""

import re
from typing import Iterator, Tuple, Union

from edgetune.agent.kinds.ethtool import show
from edgetune.agent.kinds.nic import NicParts, driver_of
from edgetune.agent.kinds.nic_irq_affinity import NicIrqAffinity
from edgetune.agent.kinds.nic_rss import NicRss
from edgetune.agent.protocol import Unsupported
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.nic_coalesce import KIND, NUMBERS, SWITCHES
from edgetune.agent.vocabulary.values import Parts, Target, Value, counts, holds, merged, parts


class NicCoalesce(NicParts):
    """How long an interface gathers packets before it interrupts: names as ``ethtool -C`` has them.

    ixgbe starts the interface anew where receive coalescing (LRO) comes or goes with it.
    """

    kind = KIND
    # A card tells two dozen of them; others may change without our doing.
    partly = True
    change = "-C"
    below = (NicRss, NicIrqAffinity)
    # They refuse a time while they adapt it by themselves; others take it, and adapt it then.
    refuse_while_adaptive = ("i40e", "iavf", "ice")

    def probe(self, setting: Setting) -> None:
        """Unsupported when the driver does not know one of them (it is ``n/a``), or refuses it."""
        interface, wanted = setting.target["interface"], parts(setting.value)
        now, known = parts(self.runtime(setting.target)), self._known(interface)
        missing = sorted(name for name in set(wanted) - set(known) if now.get(name) != wanted[name])
        if missing:
            raise Unsupported(f"{interface} has no coalescing {', '.join(missing)}")
        if driver_of(self.host, interface) in self.refuse_while_adaptive:
            for side in ("rx", "tx"):
                time, on = f"{side}-usecs", f"adaptive-{side}"
                changes = time in wanted and not self.same(now, {time: wanted[time]})
                if changes and now.get(on) == "on" and wanted.get(on) != "off":
                    raise Unsupported(
                        f"{time} cannot be set while {on} is on: turn that off as well"
                    )

    def runtime(self, target: Target) -> Value:
        """Everything the driver knows of coalescing; one that cannot adapt it does not."""
        self.queues(target)
        return {"adaptive-rx": "off", "adaptive-tx": "off", **self._known(target["interface"])}

    def _known(self, interface: str) -> Parts:
        names = {*SWITCHES, *NUMBERS}
        pairs = coalescing(show(self.host, "-c", interface))
        return {name: part for name, part in pairs if name in names}

    def same(self, now: Value, wanted: Value) -> bool:
        """Some chips count in steps of 2 us: a time may be 1 us off, but 0 stands for none."""
        off_by_one: Parts = {
            name: part
            for name, part in counts(wanted).items()
            if "usecs" in name and part and 0 < counts(now).get(name, 0) in (part - 1, part + 1)
        }
        return holds(merged(now, off_by_one), wanted)

    def run(self, target: Target, wanted: Parts) -> None:
        """What adapts by itself goes first and comes last: with it on, times cannot be set."""
        last: Parts = {name: part for name, part in wanted.items() if part == "on"}
        super().run(target, {name: wanted[name] for name in wanted if name not in last})
        super().run(target, last)


def coalescing(text: str) -> Iterator[Tuple[str, Union[int, str]]]:
    """Names and values of what ``ethtool -c`` tells, without what is not available."""
    for line in text.splitlines():
        pair = re.fullmatch(r"(Adaptive|CQE mode) RX: (\S+) +TX: (\S+) *", line)
        if pair:
            name = pair.group(1).lower().replace(" ", "-")
            pairs = [(f"{name}-rx", pair.group(2)), (f"{name}-tx", pair.group(3))]
        else:
            name, _, value = line.partition(":")
            pairs = [(name, value.strip())]
        for name, value in pairs:
            if value.isdigit():
                yield name, int(value)
            elif value in ("on", "off"):
                yield name, value
