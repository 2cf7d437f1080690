# SPDX-License-Identifier: Apache-2.0
"""Directories of the host that only root can change, and what files have beside their bytes.

A path is walked one component at a time. Each directory on the way has to be one in which nobody
but root can make or rename an entry, so nobody else decides what a name in it means. A symbolic
link in such a directory is root's own (``/bin -> usr/bin``) and is followed below the host's root.

One directory is not root's alone: that of node_exporter's text files. It is opened ``shared``. From
the first directory on that others can change, no link is followed.
"""

import contextlib
import errno
import os
import re
import stat
from typing import BinaryIO, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from edgetune.agent.protocol import Refused

LABEL = "security.selinux"
OF_BYTES = "security.ima"
"""A sum, or a signature, of the very bytes of a file."""
OF_INODE = "security.evm"
"""The same of what is beside them, and of the inode: the kernel makes it anew."""


class Metadata(NamedTuple):
    """What a file has beside its bytes; -1 and None for what is as a new file has it.

    On Linux access control lists and the label of SELinux are extended attributes. On FreeBSD
    Python knows neither these nor lists nor flags, and there mode, owner and time are all.

    Nowhere kept are the number of the inode, the times of access, of birth and of the last change
    of the inode (ctime), and the flags of chattr(1): nobody can set the first ones.
    """

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


DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# As many as the kernel follows in one path.
MOST_LINKS = 40
NEW_FILE = Metadata(0o644)


class Directory:
    """An open directory of the host; its methods take the names of entries, never paths."""

    def __init__(self, descriptor: int, path: str) -> None:
        self.descriptor = descriptor
        self.path = path

    def status(self, name: str) -> Optional[os.stat_result]:
        """What an entry is, or None without one; a link is not followed."""
        try:
            return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def open(self, name: str, flags: int, mode: int = 0o600) -> int:
        """A descriptor of an entry; OSError as it comes, also for a link."""
        flags |= os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, mode, dir_fd=self.descriptor)

    def read(self, name: str) -> Tuple[bytes, Metadata]:
        """A plain file, with what it has beside its bytes; Refused for anything else, OSError."""
        with self._open_plain(name) as file:
            return file.read(), read_metadata(file.fileno())

    def _open_plain(self, name: str) -> BinaryIO:
        found = self.status(name)
        if found and not stat.S_ISREG(found.st_mode):
            raise Refused(f"{os.path.join(self.path, name)} is not a plain file")
        return os.fdopen(self.open(name, os.O_RDONLY), "rb")

    def metadata(self, name: str) -> Optional[Metadata]:
        """What a plain file has beside its bytes; None where none is."""
        with contextlib.suppress(FileNotFoundError, Refused), self._open_plain(name) as file:
            return read_metadata(file.fileno())
        return None

    def replace(
        self,
        name: str,
        data: bytes,
        wanted: Metadata,
        room: "Optional[Tuple[Directory, str]]" = None,
    ) -> None:
        """Replace a file in one step, and durably; ``wanted`` is what it has beside its bytes.

        It is filled under a name that nobody can foresee. ``room`` is a file in a directory that
        is used up for it.
        """
        self.remove_drafts(name)
        draft = f".{name}.edgetune-{os.urandom(8).hex()}"
        if room and wanted.xattrs is None:
            # What is made here has the label of this place, not that of the other one.
            wanted = wanted._replace(xattrs=label_of(self.descriptor))
        try:
            _fill(self._open_draft(draft, room), data, wanted)
            os.rename(draft, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                self.remove_drafts(name)
            raise
        self.sync()

    def _open_draft(self, draft: str, room: "Optional[Tuple[Directory, str]]") -> int:
        if room:
            # Not removed first: whoever filled the disk would take what that frees. On another
            # file system than the reserve's that cannot help.
            with contextlib.suppress(OSError):
                place, name = room
                os.rename(name, draft, src_dir_fd=place.descriptor, dst_dir_fd=self.descriptor)
                return self.open(draft, os.O_WRONLY)
        return self.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL)

    def remove(self, name: str) -> None:
        """Remove a file, and what a killed ``replace`` left of it; nothing where none is."""
        self.remove_drafts(name)
        self._unlink(name)

    def remove_drafts(self, name: str) -> None:
        """Remove what a killed ``replace`` left; that of older agents has no random part."""
        for entry in self.drafts(name):
            self._unlink(entry)

    def drafts(self, name: str) -> List[str]:
        """The entries that a ``replace`` made which was killed, or is under way."""
        draft = re.compile(re.escape(f".{name}.edgetune") + "(-[0-9a-f]{16})?")
        return list(filter(draft.fullmatch, os.listdir(self.descriptor)))

    def _unlink(self, name: str) -> None:
        # A disk that is read-only refuses to remove what was never there.
        if self.status(name) is not None:
            os.unlink(name, dir_fd=self.descriptor)
            self.sync()

    def why_not_writable(self, name: str = "") -> Optional[str]:
        """Why nothing can be made here, nor ``name`` be replaced; None where that is possible."""
        if os.fstatvfs(self.descriptor).f_flag & os.ST_RDONLY:
            return f"{self.path} is on a read-only file system"
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=self.descriptor):
            return f"{self.path} cannot be written"
        found = self.status(name) if name else None
        if found is None or not stat.S_ISREG(found.st_mode):
            return None
        path = os.path.join(self.path, name)
        # Of root only what is immutable keeps away.
        if os.geteuid() == 0 and not os.access(name, os.W_OK, dir_fd=self.descriptor):
            return f"{path} cannot be replaced"
        return self.why_not_parted(name)

    def why_not_parted(self, name: str) -> Optional[str]:
        """Why a file cannot be replaced that has other names, too; None where it has none."""
        found = self.status(name)
        if found is None or not stat.S_ISREG(found.st_mode) or found.st_nlink == 1:
            return None
        path = os.path.join(self.path, name)
        return f"{path} has {found.st_nlink} hard links, and the others would stay as they are"

    def link_target(self, name: str) -> Optional[str]:
        """Where an entry leads that is a link; PermissionError for another one's than root's."""
        found = self.status(name)
        if found is None or not stat.S_ISLNK(found.st_mode):
            return None
        if found.st_uid not in (0, os.geteuid()):
            raise _shared(os.path.join(self.path, name), found)
        return os.readlink(name, dir_fd=self.descriptor)

    def sync(self) -> None:
        """Make durable which entries there are."""
        os.fsync(self.descriptor)

    def link(self, name: str, target: str) -> None:
        """Make a symbolic link, durably."""
        os.symlink(target, name, dir_fd=self.descriptor)
        self.sync()

    def make_directory(self, name: str, mode: int) -> None:
        """Make a directory, durably, whatever the umask is."""
        os.mkdir(name, mode, dir_fd=self.descriptor)
        descriptor = os.open(name, DIRECTORY, dir_fd=self.descriptor)
        try:
            os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)
        self.sync()


@contextlib.contextmanager
def opened(root: str, path: str, shared: bool = False) -> Iterator[Directory]:
    """The directory ``path`` of the host below ``root``; PermissionError if others can change it.

    ``shared``: others may; PermissionError if a link of theirs could lead elsewhere.
    FileNotFoundError and NotADirectoryError as they come.
    """
    walk = _Walk(root, shared)
    try:
        walk.go(path)
        yield Directory(walk.descriptor, path)
    finally:
        os.close(walk.descriptor)


class _Walk:
    """The way down from the host's root, with the directory that was reached open."""

    def __init__(self, root: str, shared: bool) -> None:
        self._root = root
        self._may_share = shared
        self._is_shared = False
        self._names: List[str] = []
        self.descriptor = os.open(root, DIRECTORY)

    def go(self, path: str) -> None:
        """To a path, each directory on the way seen to be root's alone, or without links."""
        ahead, links = path.split("/"), 0
        self._look("/")
        while ahead:
            name = ahead.pop(0)
            target = self._target(name)
            if target is None:
                self._enter(name)
                continue
            links += 1
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, "too many links", path)
            ahead = target.split("/") + ahead
            if target.startswith("/"):
                self._move(os.open(self._root, DIRECTORY), [])

    def _target(self, name: str) -> Optional[str]:
        """Where an entry leads that is a link."""
        if name in ("", ".", ".."):
            return None
        status = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        if not stat.S_ISLNK(status.st_mode):
            return None
        if self._is_shared or status.st_uid not in (0, os.geteuid()):
            raise _shared("/" + "/".join([*self._names, name]), status)
        return os.readlink(name, dir_fd=self.descriptor)

    def _enter(self, name: str) -> None:
        if name in ("", ".") or (name == ".." and not self._names):
            return
        names = self._names[:-1] if name == ".." else [*self._names, name]
        self._move(os.open(name, DIRECTORY, dir_fd=self.descriptor), names)
        self._look("/" + "/".join(names))

    def _look(self, path: str) -> None:
        try:
            # PermissionError for a directory in which others than root can make or rename an
            # entry.
            status = os.fstat(self.descriptor)
            by_group = status.st_mode & stat.S_IWGRP and (
                # The bits of the group are the mask of an access control list where there is one.
                status.st_gid not in (0, os.getegid()) or _has_access_list(self.descriptor)
            )
            if status.st_uid not in (0, os.geteuid()) or by_group or status.st_mode & stat.S_IWOTH:
                raise _shared(path, status)
        except PermissionError:
            if not self._may_share:
                raise
            self._is_shared = True

    def _move(self, descriptor: int, names: List[str]) -> None:
        os.close(self.descriptor)
        self.descriptor, self._names = descriptor, names


def _shared(path: str, status: os.stat_result) -> PermissionError:
    whose = f"owner {status.st_uid}, group {status.st_gid}"
    text = f"others than root can change {path} ({whose}, mode {stat.S_IMODE(status.st_mode):04o})"
    return PermissionError(errno.EPERM, text)


def _has_access_list(descriptor: int) -> bool:
    if not hasattr(os, "getxattr"):
        # Python does not see it on FreeBSD.
        return True
    try:
        return bool(os.getxattr(descriptor, "system.posix_acl_access"))
    except OSError:
        return False


def _fill(descriptor: int, data: bytes, wanted: Metadata) -> None:
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.truncate()
        file.flush()
        apply_metadata(descriptor, wanted)
        os.fsync(descriptor)
