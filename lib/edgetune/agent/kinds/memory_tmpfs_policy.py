# SPDX-License-Identifier: Apache-2.0
"""On which NUMA nodes the files of a tmpfs get their memory."""

import re
from typing import List, Optional

from edgetune.agent.kinds.base import HookKept
from edgetune.agent.protocol import Unsupported
from edgetune.agent.topology import named, refuse_nodes
from edgetune.agent.vocabulary.kinds.memory_tmpfs_policy import KIND
from edgetune.agent.vocabulary.setting import Setting
from edgetune.agent.vocabulary.values import Target, Value

MPOL = re.compile(r"(?:^|,)mpol=([a-z()= |]+)(?::([0-9]+(?:[,-][0-9]+)*))?(?=,|$)")


class Mount:
    """One line of /proc/self/mountinfo."""

    def __init__(self, line: str) -> None:
        own, _, of_filesystem = line.partition(" - ")
        self.root, self.point, self.flags = map(_plain, own.split()[3:6])
        self.type, source, self.options = of_filesystem.split(" ", 2)
        self.source = _plain(source)

    @property
    def policy(self) -> Optional[str]:
        """Its ``mpol``, such as ``interleave:0-1``; None when it never had one."""
        found = MPOL.search(self.options)
        return ":".join(filter(None, found.groups())) if found else None


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
        lines = self.host.text("/proc/self/mountinfo").splitlines()
        found: List[Mount] = [Mount(line) for line in lines]
        return next((own for own in reversed(found) if own.point == target["mount"]), None)


def _plain(word: str) -> str:
    """A word of mountinfo without its escapes, which few have."""
    return re.sub(r"\\([0-7]{3})", _unescape, word) if "\\" in word else word


def _unescape(found: "re.Match[str]") -> str:
    return chr(int(found.group(1), 8))
