# SPDX-License-Identifier: Apache-2.0
"""Files as a journal remembers them, and the directories that we made for ours."""

import base64
import json
import os
from typing import List

from edgetune.agent.disk import Metadata
from edgetune.agent.host import Host, room_or_not
from edgetune.agent.journal import FileState
from edgetune.agent.protocol import Refused
from edgetune.agent.vocabulary.places import STATE


def remember_file(host: Host, name: str) -> FileState:
    """A file as it is now, for a journal."""
    try:
        content, beside = host.kept(name)
    except (FileNotFoundError, NotADirectoryError):
        return FileState(None, 0, 0, 0)
    mode, uid, gid, attributes, mtime_ns = beside
    xattrs = {name: _encoded(value) for name, value in (attributes or {}).items()}
    return FileState(_encoded(content), mode, uid, gid, xattrs, mtime_ns)


def is_as_remembered(host: Host, name: str, was: FileState, times: bool = False) -> bool:
    """Whether a file is as a journal remembers it, as far as that does; the ``times`` if asked."""
    try:
        now = remember_file(host, name)
    except (OSError, Refused):
        return False
    if was.xattrs is None:
        now = now._replace(xattrs=None)
    if was.mtime_ns is None or not times:
        now = now._replace(mtime_ns=was.mtime_ns)
    return now == was


def restore_file(host: Host, name: str, was: FileState) -> None:
    """Make a file as a journal remembers it, to the byte.

    What cannot be done is no problem where the file is so all the same.
    """
    try:
        if was.content is None:
            host.remove(name)
        elif not is_as_remembered(host, name, was, times=True):
            host.make_directory(os.path.dirname(name))
            known = was.xattrs
            xattrs = None if known is None else {key: base64.b64decode(known[key]) for key in known}
            exactly = Metadata(was.mode, was.uid, was.gid, xattrs, was.mtime_ns)
            host.write(name, base64.b64decode(was.content), exactly=exactly)
        else:
            host.remove(name, only_draft=True)
    except OSError:
        if host.drafts(name) or not is_as_remembered(host, name, was):
            raise


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


class Directories:
    """The directories that we made, kept on disk so that they can go when they are empty."""

    FILE = STATE + "/directories.json"

    def __init__(self, host: Host) -> None:
        self._host = host

    def make(self, directory: str) -> None:
        """Make a directory for a file of ours; written down first."""
        missing = self._host.missing(directory)
        if missing:
            self._keep(self._load() + missing)
            self._host.make_directory(directory)

    def prune(self) -> None:
        """Remove those that are empty by now."""
        kept = []
        for directory in sorted(self._load(), reverse=True):
            # A disk that is read-only refuses to remove what was never made.
            if self._host.exists(directory):
                try:
                    self._host.remove_directory(directory)
                except OSError:
                    kept.append(directory)
        # One named too many does no harm.
        with room_or_not():
            self._keep(kept)

    def _load(self) -> List[str]:
        try:
            found: List[str] = json.loads(self._host.kept(self.FILE)[0].decode())
            return found
        except FileNotFoundError:
            return []

    def _keep(self, directories: List[str]) -> None:
        data = json.dumps(sorted(directories)).encode()
        if not directories:
            self._host.remove(self.FILE)
        elif not self._host.holds(self.FILE, data):
            self._host.write(self.FILE, data, 0o600)
