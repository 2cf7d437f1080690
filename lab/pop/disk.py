# SPDX-License-Identifier: Apache-2.0
"""A host's own disk: a tmpfs of limited size in the supervisor's mount namespace.

It outlives the host's reboots, and can be full.
"""

from __future__ import annotations

import os
from pathlib import Path

from . import kernel
from .layout import LabError

SIZE = "16m"
TRIES = 20


def make(directory: Path) -> None:
    """An empty disk at `directory`, for the upper layer and the work of an overlay."""
    directory.mkdir(parents=True)
    kernel.mount("disk", directory, "tmpfs", data=f"mode=755,size={SIZE}")


def fill(directory: Path) -> None:
    """Leave no room for a single byte: the disk becomes as small as what is on it.

    As elsewhere an empty file can still be made.
    """
    for _ in range(TRIES):
        found = os.statvfs(directory)
        try:
            _resize(directory, str((found.f_blocks - found.f_bfree) * found.f_frsize))
        except OSError:  # the host wrote something meanwhile
            continue
        return
    raise LabError(f"{directory.parent.name} writes too much for its disk to be filled")


def empty(directory: Path) -> None:
    """As much room as in the beginning."""
    _resize(directory, SIZE)


def _resize(directory: Path, size: str) -> None:
    kernel.mount("disk", directory, "tmpfs", flags=kernel.REMOUNT, data=f"size={size}")
