# SPDX-License-Identifier: Apache-2.0
"""What a machine says on its serial port, where nothing else of it answers.

Texts are those of systemd 252, initramfs-tools 0.142, e2fsprogs 1.47, GRUB 2.06 and Linux 6.1.
"""

from __future__ import annotations

import re
from pathlib import Path

# What a machine says that stays where it is until a person comes, or a watchdog.
_STANDS = re.compile(
    r"emergency mode|requires a manual fsck"
    r"|UNEXPECTED INCONSISTENCY|\(initramfs\)|Gave up waiting for|^grub( rescue)?>|^error: "
    r"|Kernel panic - not syncing|watchdog: BUG: soft lockup"
)
_BOOT = "Loading Linux "  # GRUB, where it leaves for a kernel
_ESCAPES = re.compile(r"\x1b[\[(][0-9;?]*[A-Za-z]|\x1b.|[\x00-\x08\x0b-\x1f\x7f]")
_LAST_BYTES = 1 << 20
_LONGEST = 160


def told(console: Path) -> str:
    """The line by which the present boot says why it goes no further, or the last one; "" for none.

    `console` is the file of a Machine.
    """
    try:
        with console.open("rb") as file:
            file.seek(max(0, console.stat().st_size - _LAST_BYTES))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    present = text[max(text.rfind(_BOOT), 0) :]
    lines = [_ESCAPES.sub("", line).strip() for line in present.splitlines()]
    lines = [line for line in lines if line]
    standing = [line for line in lines if _STANDS.search(line)]
    return (standing or lines or [""])[-1][:_LONGEST]
