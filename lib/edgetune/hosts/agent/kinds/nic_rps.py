# SPDX-License-Identifier: Apache-2.0
"""Which CPUs receive packets in software (RPS)."""

from typing import TYPE_CHECKING, Any, Dict

from edgetune.hosts.agent.kinds.nic import NicKind
from edgetune.hosts.agent.protocol import Fields, Unsupported
from edgetune.hosts.agent.values import (
    Target,
    Value,
    format_cpus,
    format_mask,
    parse_cpus,
    parse_mask,
    read_cpu_list,
)

if TYPE_CHECKING:
    from edgetune.hosts.agent.settings import Setting


class NicRps(NicKind):
    """Which CPUs receive packets in software: the same for all receive queues."""

    name = "nic.rps"
    ordered = False

    @classmethod
    def check_value(cls, fields: Fields) -> Value:
        return read_cpu_list(fields, "value")

    def probe(self, setting: "Setting") -> None:
        online = parse_cpus(self.host.text("/sys/devices/system/cpu/online"))
        missing = parse_cpus(str(setting.value)) - online
        if missing:
            raise Unsupported(f"CPU {format_cpus(missing)} is not online")

    def runtime(self, target: Target) -> Value:
        """The CPUs; where queues differ, each with its own (``rx-0: 0, rx-1: ``)."""
        masks = self._masks(target)
        lists = {queue: format_cpus(parse_mask(text)) for queue, text in masks.items()}
        if len(set(lists.values())) == 1:
            return next(iter(lists.values()))
        return ", ".join(f"{queue.split('/')[0]}: {cpus}" for queue, cpus in lists.items())

    def snapshot(self, target: Target) -> Any:
        return self._masks(target)

    def apply(self, target: Target, value: Value) -> None:
        """Give all receive queues the same mask."""
        mask = format_mask(parse_cpus(str(value)))
        for file in self._masks(target):
            self.host.poke(f"{self._directory(target)}/queues/{file}", f"{mask}\n")

    def restore(self, target: Target, snapshot: Any) -> None:
        self.put_steering_back(target, snapshot)

    def _masks(self, target: Target) -> Dict[str, str]:
        masks = self.read_steering(target, ("rps_cpus",))
        if not masks:
            raise Unsupported(f"{target['interface']} has no receive queues with rps_cpus")
        return masks
