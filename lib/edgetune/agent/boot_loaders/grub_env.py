# SPDX-License-Identifier: Apache-2.0
"""GRUB's environment block: which entry is the default, and which one is booted once.

GRUB itself clears ``next_entry`` as it boots. It writes into the blocks of the file, past the file
system, and so only where these lie on the disk as the file has them (GRUB manual, "Environment
block").
"""

import os
import re
from typing import Dict, List, Tuple

from edgetune.agent.host import Host
from edgetune.agent.protocol import Unsupported

WRITABLE = ("ext2", "ext3", "ext4", "xfs", "vfat")
_MAPPED = {"dm": "a device mapper (LVM, LUKS, multipath)", "md": "a RAID", "bcache": "bcache"}


class GrubEnv:
    """The block in one file."""

    def __init__(self, host: Host, file: str) -> None:
        self._host, self.file = host, file

    def read(self) -> Dict[str, str]:
        """Its variables; none where there is no file."""
        lines = self._host.text(self.file).splitlines()
        pairs = [line.partition("=") for line in lines if "=" in line and not line.startswith("#")]
        return {name: re.sub(r"\\(.)", r"\1", value) for name, _, value in pairs}

    def probe(self) -> None:
        """Unsupported where GRUB cannot write it, or nobody can."""
        if not self._host.exists(self.file):
            raise Unsupported(f"GRUB has no {self.file}: grub-editenv {self.file} create makes it")
        why = self._why_not()
        if why:
            raise Unsupported(
                f"GRUB cannot clear the entry of the next boot in {self.file}, which is on {why}: "
                "a bad kernel would be booted again and again"
            )

    def _why_not(self) -> str:
        """What it is on that GRUB cannot write; "" where it can."""
        kind, number, flags = self._mount()
        if kind not in WRITABLE:
            return kind or "an unknown file system"
        if "ro" in flags:
            return "a file system that is mounted read-only"
        device = f"/sys/dev/block/{number}"
        if not self._host.exists(device):
            return f"the unknown device {number}"
        # The directory of a partition is in that of its disk, which tells of both.
        whole = f"{device}/.." if self._host.exists(f"{device}/partition") else device
        for name, what in _MAPPED.items():
            if self._host.exists(f"{whole}/{name}") or self._host.exists(f"{device}/{name}"):
                return what
        return ""

    def _mount(self) -> Tuple[str, str, List[str]]:
        """Type, device number and flags of the file system it is on."""
        real = os.path.realpath(self._host.path(self.file))
        path = real if self._host.root == "/" else real[len(self._host.root) :]
        found: Tuple[str, str, List[str]] = ("", "", [])
        longest = ""
        for line in self._host.text("/proc/self/mountinfo").splitlines():
            own, _, of_filesystem = line.partition(" - ")
            words = own.split()
            point = words[4]
            inside = path == point or path.startswith(point.rstrip("/") + "/")
            # A later mount hides an earlier one at the same place.
            if inside and len(point) >= len(longest):
                longest = point
                found = (of_filesystem.split()[0], words[2], words[5].split(","))
        return found
