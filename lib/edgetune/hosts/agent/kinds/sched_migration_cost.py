# SPDX-License-Identifier: Apache-2.0
"""How long the scheduler leaves a task where its memory is cached."""

from typing import Any

from edgetune.hosts.agent.kinds.hook_kept import HookKept
from edgetune.hosts.agent.kinds.sysctl import Sysctl
from edgetune.hosts.agent.protocol import Fields, Unsupported
from edgetune.hosts.agent.values import Target, Value

# Up to Linux 5.12 a sysctl; from 5.13 on in debugfs, which a host may not mount or lock down.
OLD = "/proc/sys/kernel/sched_migration_cost_ns"
NEW = "/sys/kernel/debug/sched/migration_cost_ns"


class SchedMigrationCost(HookKept):
    """For how many nanoseconds after it ran a task counts as too costly to move to another CPU."""

    name = "sched.migration_cost"

    @staticmethod
    def scope(target: Target) -> str:
        return Sysctl.scope({"key": "kernel.sched_migration_cost_ns"})

    @classmethod
    def check_value(cls, fields: Fields) -> Value:
        return str(int(fields.text("value", r"[0-9]{1,9}")))

    def runtime(self, target: Target) -> Value:
        if not self.present(target):
            raise Unsupported(f"no {NEW}: debugfs is not mounted, or the kernel does not tell it")
        return self.text(self._file()).strip()

    def present(self, target: Target) -> bool:
        return self.host.exists(self._file())

    def snapshot(self, target: Target) -> Any:
        return self.text(self._file())

    def apply(self, target: Target, value: Value) -> None:
        self.host.poke(self._file(), f"{value}\n")

    def restore(self, target: Target, snapshot: Any) -> None:
        if self.text(self._file()) != snapshot:
            self.host.poke(self._file(), snapshot)

    def _file(self) -> str:
        return OLD if self.host.exists(OLD) else NEW
