# SPDX-License-Identifier: Apache-2.0
"""How many queues an interface has, where its driver changes that while it runs."""

from typing import Dict

from edgetune.agent.freebsd.readings import driver_and_unit, is_there, value_of, whole
from edgetune.agent.kinds import HookKept, texts
from edgetune.agent.protocol import Unsupported
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.nic_channels import KIND
from edgetune.agent.vocabulary.values import Target, Value, parts

BY_A_BOOT = {
    **dict.fromkeys(
        ("ix", "ixl", "ice", "igc", "igb", "em", "vmx"),
        "dev.{0}.{1}.iflib.override_nrxqs and override_ntxqs",
    ),
    **dict.fromkeys(("cxgbe", "cxl", "cc"), "hw.cxgbe.nrxq and hw.cxgbe.ntxq"),
}
"""The tunables of drivers that make their queues when they attach."""


class NicChannels(HookKept):
    """Channels of mlx5en(4), each a queue of both sides. The interface goes down for the change."""

    kind = KIND

    def probe(self, setting: Setting) -> None:
        """Unsupported for another driver, and for queues of one side."""
        self.runtime(setting.target)
        wanted = parts(setting.value)
        if [*wanted] != ["combined"] or not wanted["combined"]:
            raise Unsupported("mlx5en(4) has channels of both sides alone: combined, 1 or more")

    def runtime(self, target: Target) -> Value:
        name = self._parameter(target)
        count = whole(value_of(self.host, name))
        if count is None:
            raise Unsupported(f"{name} tells no number of channels")
        return {"combined": count}

    def present(self, target: Target) -> bool:
        return is_there(self.host, self._parameter(target))

    def ready(self, target: Target) -> bool:
        return self.present(target)

    def snapshot(self, target: Target) -> Dict[str, str]:
        return {"channels": str(parts(self.runtime(target))["combined"])}

    def apply(self, target: Target, value: Value) -> None:
        self._set(target, str(parts(value)["combined"]))

    def restore(self, target: Target, snapshot: object) -> None:
        was = texts(snapshot)["channels"]
        if self.runtime(target) != {"combined": int(was)}:
            self._set(target, was)

    def _set(self, target: Target, count: str) -> None:
        self.host.run("sysctl", f"{self._parameter(target)}={count}")

    @staticmethod
    def _parameter(target: Target) -> str:
        driver, unit = driver_and_unit(target["interface"])
        if driver == "mce":
            return f"dev.mce.{unit}.conf.channels"
        if driver in BY_A_BOOT:
            names = BY_A_BOOT[driver].format(driver, unit)
            raise Unsupported(
                f"{driver} makes its queues at a boot alone: the kind loader.tunable sets {names}"
            )
        raise Unsupported(f"how many queues {driver} makes is set by nothing that is known")
