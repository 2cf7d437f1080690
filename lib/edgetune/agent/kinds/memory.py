# SPDX-License-Identifier: Apache-2.0
"""Transparent huge pages, and on which NUMA nodes a tmpfs gets its memory."""

import contextlib
import re
from typing import Dict, Optional

from edgetune.agent.kinds import HookKept, texts
from edgetune.agent.protocol import Unsupported
from edgetune.agent.readings import Mount, mounts
from edgetune.agent.topology import named, refuse_nodes
from edgetune.agent.vocabulary.kind import parameter
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.memory import THP, TMPFS_POLICY, file_of
from edgetune.agent.vocabulary.values import Target, Value

MIN_FREE_FILE = parameter("vm.min_free_kbytes")


class MemoryThp(HookKept):
    """When the kernel uses transparent huge pages."""

    kind = THP

    def probe(self, setting: Setting) -> None:
        """Unsupported when this kernel does not offer the word."""
        words = re.sub(r"[][]", "", self._read(setting.target)).split()
        if len(words) > 1 and setting.value not in words:
            raise Unsupported(f"this kernel knows {', '.join(words)}, not {setting.value}")

    def runtime(self, target: Target) -> str:
        """The word in brackets, or the only one."""
        text = self._read(target)
        chosen = re.search(r"\[(.+?)\]", text)
        return chosen.group(1) if chosen else text.strip()

    def present(self, target: Target) -> bool:
        return self.host.exists(file_of(target))

    def snapshot(self, target: Target) -> Dict[str, str]:
        return {"text": self._read(target), "word": self.runtime(target)}

    def apply(self, target: Target, value: Value) -> None:
        self._write(target, f"{value}\n")

    def restore(self, target: Target, snapshot: object) -> None:
        """Write the old word; where a plain file stands in for the kernel's, its old text."""
        was = texts(snapshot)
        text = was["text"]
        if self._read(target) == text:
            return
        self.apply(target, was["word"])
        if self._read(target) != text:
            with contextlib.suppress(OSError):
                self._write(target, text)

    def _write(self, target: Target, text: str) -> None:
        """With it the kernel may raise vm.min_free_kbytes, which is not ours to change here."""
        was = self.host.text(MIN_FREE_FILE)
        self.host.write_attribute(file_of(target), text)
        if self.host.text(MIN_FREE_FILE) != was:
            self.host.write_attribute(MIN_FREE_FILE, f"{was}\n")

    def _read(self, target: Target) -> str:
        return self.text(file_of(target))


class MemoryTmpfsPolicy(HookKept):
    """The NUMA nodes on which a tmpfs gets the memory of what is written from now on.

    ``interleave`` (over all that have any), ``interleave:0-1``, ``bind:0-1``, ``prefer:0`` or
    ``local``. A tmpfs without a policy reads as ``local`` and is made so again when it is taken
    back: no remount gives the kernel's own state back, and the two differ only for processes that
    have a policy of their own.
    """

    kind = TMPFS_POLICY

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
        return next((own for own in found if own.point == target["mount"]), None)
