# SPDX-License-Identifier: Apache-2.0
"""How long the scheduler leaves a task where its memory is cached."""

from edgetune.agent.kinds import HookKept
from edgetune.agent.protocol import Unsupported
from edgetune.agent.vocabulary.kinds.sched_migration_cost import KIND, NEW, OLD
from edgetune.agent.vocabulary.values import Target, Value


class SchedMigrationCost(HookKept):
    """For how many nanoseconds after it ran a task counts as too costly to move to another CPU."""

    kind = KIND

    def runtime(self, target: Target) -> Value:
        if not self.present(target):
            raise Unsupported(f"no {NEW}: debugfs is not mounted, or the kernel does not tell it")
        return self.text(self._file()).strip()

    def present(self, target: Target) -> bool:
        return self.host.exists(self._file())

    def snapshot(self, target: Target) -> str:
        return self.text(self._file())

    def apply(self, target: Target, value: Value) -> None:
        self.host.write_attribute(self._file(), f"{value}\n")

    def restore(self, target: Target, snapshot: object) -> None:
        if self.text(self._file()) != snapshot:
            self.host.write_attribute(self._file(), str(snapshot))

    def _file(self) -> str:
        return OLD if self.host.exists(OLD) else NEW
