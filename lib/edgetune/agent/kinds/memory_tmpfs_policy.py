# SPDX-License-Identifier: Apache-2.0
"""On which NUMA nodes the files of a tmpfs get their memory."""

from typing import Optional

from edgetune.agent.kinds import HookKept
from edgetune.agent.protocol import Unsupported
from edgetune.agent.readings import Mount, mounts
from edgetune.agent.topology import named, refuse_nodes
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.memory_tmpfs_policy import KIND
from edgetune.agent.vocabulary.values import Target, Value


class MemoryTmpfsPolicy(HookKept):
    """The NUMA nodes on which a tmpfs gets the memory of what is written from now on.

    ``interleave`` (over all that have any), ``interleave:0-1``, ``bind:0-1``, ``prefer:0`` or
    ``local``. A tmpfs without a policy reads as ``local`` and is made so again when it is taken
    back: no remount gives the kernel's own state back, and the two differ only for processes that
    have a policy of their own.
    """

    kind = KIND

    def rounded(self, target: Target, value: Value) -> Value:
        """The nodes in their shortest form."""
        return self._short(str(value))

    def probe(self, setting: Setting) -> None:
        """Unsupported for nodes without memory."""
        refuse_nodes(self.host, str(setting.value))

    def runtime(self, target: Target) -> Value:
        """Unsupported when no tmpfs is mounted there."""
        return self._short(self._mount(target).policy or "local")

    def present(self, target: Target) -> bool:
        mount = self._find(target)
        return mount is not None and mount.type == "tmpfs"

    def snapshot(self, target: Target) -> Optional[str]:
        return self._mount(target).policy

    def apply(self, target: Target, value: Value) -> None:
        self._remount(target, str(value))

    def restore(self, target: Target, snapshot: object) -> None:
        wanted = str(snapshot or "local")
        if (self._mount(target).policy or "local") != wanted:
            self._remount(target, wanted)

    def _remount(self, target: Target, policy: str) -> None:
        """With its flags, and with source and place: of one alone, mount would ask fstab.

        What it has of its own (size, mode, owner, ...) the kernel keeps where nothing is said.
        """
        mount = self._mount(target)
        options = f"remount,{mount.flags},mpol={policy}"
        self.host.run("mount", "-t", "tmpfs", "-o", options, mount.source, mount.point)

    def _short(self, policy: str) -> str:
        word, _, nodes = policy.partition(":")
        return named(self.host, word, nodes)

    def _mount(self, target: Target) -> Mount:
        mount = self._find(target)
        if mount is None or mount.type != "tmpfs":
            there = f"a {mount.type}" if mount else "nothing mounted"
            raise Unsupported(f"{target['mount']} is no tmpfs: there is {there}")
        if mount.root != "/":
            raise Unsupported(f"{target['mount']} is a part of a tmpfs that is mounted elsewhere")
        return mount

    def _find(self, target: Target) -> Optional[Mount]:
        """What is mounted there; of several on top of one another the last."""
        found = reversed(mounts(self.host))
        return next((mount for mount in found if mount.point == target["mount"]), None)
