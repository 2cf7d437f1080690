# SPDX-License-Identifier: Apache-2.0
"""What a file has beside its bytes: mode, owner, extended attributes, the time of its last change.

On Linux access control lists and the label of SELinux are extended attributes. On FreeBSD Python
knows neither these nor lists nor flags, and there mode, owner and time are all.

Nowhere kept are the number of the inode, the times of access, of birth and of the last change of
the inode (ctime), and the flags of chattr(1): nobody can set the first ones.
"""

import contextlib
import os
import stat
from typing import Dict, Iterable, NamedTuple, Optional

LABEL = "security.selinux"
OF_BYTES = "security.ima"
"""A sum, or a signature, of the very bytes of a file."""
OF_INODE = "security.evm"
"""The same of what is beside them, and of the inode: the kernel makes it anew."""


class Metadata(NamedTuple):
    """Of one file; -1 and None for what is as a new file has it."""

    mode: int
    uid: int = -1
    gid: int = -1
    xattrs: Optional[Dict[str, bytes]] = None
    mtime_ns: Optional[int] = None

    def for_other_bytes(self) -> "Metadata":
        """The same for another content."""
        return self._replace(xattrs=_without(self.xattrs, (OF_BYTES,)), mtime_ns=None)

    def label_alone(self, mode: int) -> "Metadata":
        """Of a file of ours with this mode in its place."""
        others = [name for name in self.xattrs or {} if name != LABEL]
        return Metadata(mode, xattrs=_without(self.xattrs, others))


def read_metadata(descriptor: int) -> Metadata:
    """That of an open file."""
    status = os.fstat(descriptor)
    xattrs = {name: os.getxattr(descriptor, name) for name in _names(descriptor)}
    mode = stat.S_IMODE(status.st_mode)
    return Metadata(mode, status.st_uid, status.st_gid, xattrs, status.st_mtime_ns)


def apply_metadata(descriptor: int, wanted: Metadata) -> None:
    """Give it to a file that is written by now; OSError for what its file system does not take.

    What is so already is not set: FAT takes no owner, and its labels are those of its mount.
    """
    status = os.fstat(descriptor)
    if (wanted.uid, wanted.gid) not in ((-1, -1), (status.st_uid, status.st_gid)):
        os.fchown(descriptor, wanted.uid, wanted.gid)
    # After the owner, whose change takes away the bits that set an id.
    os.fchmod(descriptor, wanted.mode)
    if wanted.xattrs is not None:
        there = {name: os.getxattr(descriptor, name) for name in _names(descriptor)}
        for name, value in wanted.xattrs.items():
            if there.get(name) != value:
                os.setxattr(descriptor, name, value)
        for name in there:
            # A directory gives its access control list to what is made there. A label cannot go.
            if name not in wanted.xattrs and not name.startswith("security."):
                os.removexattr(descriptor, name)
    if wanted.mtime_ns is not None:
        os.utime(descriptor, ns=(status.st_atime_ns, wanted.mtime_ns))


def label_of(descriptor: int) -> Dict[str, bytes]:
    """The label of an open file or directory by its name; nothing without SELinux."""
    with contextlib.suppress(OSError, AttributeError):
        return {LABEL: os.getxattr(descriptor, LABEL)}
    return {}


def _names(descriptor: int) -> Iterable[str]:
    if not hasattr(os, "listxattr"):
        return []
    try:
        return [name for name in os.listxattr(descriptor) if name != OF_INODE]
    except OSError:
        # Of a file system without any.
        return []


def _without(
    xattrs: Optional[Dict[str, bytes]], names: Iterable[str]
) -> Optional[Dict[str, bytes]]:
    if xattrs is None:
        return None
    return {name: value for name, value in xattrs.items() if name not in names}
