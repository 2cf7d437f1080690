# SPDX-License-Identifier: Apache-2.0
"""The few Linux system calls that Python does not offer; each raises OSError with its name."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# from <linux/sched.h>
NEW_TIME = 0x00000080
NEW_MOUNTS = 0x00020000
NEW_UTS = 0x04000000
NEW_IPC = 0x08000000
NEW_PID = 0x20000000
NEW_NET = 0x40000000

# from <linux/mount.h>
READ_ONLY = 1
REMOUNT = 32
BIND = 4096
MOVE = 8192
RECURSIVE = 16384
PRIVATE = 1 << 18

DETACH = 2  # umount2: MNT_DETACH
CAPABILITY_DROP = 24  # prctl: PR_CAPBSET_DROP

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: int | bytes | None) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def mount(
    source: str | Path, target: str | Path, kind: str = "", flags: int = 0, data: str = ""
) -> None:
    """mount(2)."""
    names = (os.fsencode(source), os.fsencode(target), kind.encode())
    _call("mount", *names, flags, data.encode() or None)


def bind(source: str | Path, target: str | Path, read_only: bool = False) -> None:
    """Show `source` at `target` too; both are files, or both are directories."""
    mount(source, target, flags=BIND)
    if read_only:
        mount("none", target, flags=BIND | REMOUNT | READ_ONLY)


def detach(target: str | Path) -> None:
    """Lazy umount(2): gone from the tree at once."""
    _call("umount2", os.fsencode(target), DETACH)


def pivot_root(new: str | Path, old: str | Path) -> None:
    """pivot_root(2)."""
    _call("pivot_root", os.fsencode(new), os.fsencode(old))


def unshare(flags: int) -> None:
    """unshare(2)."""
    _call("unshare", flags)


def setns(descriptor: int, kind: int) -> None:
    """setns(2); os.setns() exists only from Python 3.12 on."""
    _call("setns", descriptor, kind)


def drop_capability(number: int) -> None:
    """Nothing executed from here on can have this capability (a number of <linux/capability.h>)."""
    _call("prctl", CAPABILITY_DROP, number, 0, 0, 0)


@contextmanager
def own_namespaces_kept(**kinds: int) -> Iterator[None]:
    """Come back into the present namespaces at the end; `kinds` is e.g. net=NEW_NET."""
    descriptors = {name: os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in kinds}
    try:
        yield
    finally:
        for name, descriptor in descriptors.items():
            setns(descriptor, kinds[name])
            os.close(descriptor)
