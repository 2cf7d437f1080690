# SPDX-License-Identifier: Apache-2.0
"""A file that says "take me out of traffic" to whatever steers traffic to this host."""

import os
import stat
import time

from edgetune.agent.drains import Drain, Note, Seen
from edgetune.agent.host import Host
from edgetune.agent.protocol import Failed, Refused, Request
from edgetune.agent.readings import mount_over
from edgetune.agent.vocabulary.grammar import DIRECTORY
from edgetune.agent.vocabulary.places import FLAG_NOTE, NOT_READY

FLAGGED = "flag"
# keepalived reads a number from such a file; all others ask whether it is there.
CONTENT = b"1\n"
# A boot empties these.
VOLATILE = ("tmpfs", "ramfs", "devtmpfs")


class Flag(Drain):
    """The host is withdrawn while the file is there, whoever made it and whatever it holds.

    It lies on a disk: a host that reboots in the middle of a change has to stay out. What reads it
    needs ``settle`` seconds to follow, in either direction.
    """

    def __init__(self, host: Host, fields: Request) -> None:
        super().__init__(host)
        self._file = fields.text("file", DIRECTORY)
        self._settle = fields.seconds("settle")
        self._note = Note(host, FLAG_NOTE)

    def look(self) -> Seen:
        age = self._since_change()
        flagged = self._is_there()
        return Seen(
            FLAGGED if flagged else "",
            up=flagged or age is None or age >= self._settle,
            leaving=flagged and (self._age_by_hand() if age is None else age) < self._settle,
            refuses=self._refuses(),
        )

    def isolate(self) -> None:
        self.withdraw()

    def restore(self, withdrawn: str) -> None:
        if withdrawn not in ("", FLAGGED):
            raise Refused(f"{withdrawn!r} is no way in which a flag withdraws a host")
        if withdrawn:
            self.withdraw()
        elif self._is_there():
            self._note.write(file=self._file, flagged=False)
            self.host.remove(self._file)
            # A power cut must not bring it back once the host is to serve.
            with self.host.directory(os.path.dirname(self._file)) as directory:
                directory.sync()

    def withdraw(self) -> None:
        if self._is_there():
            return
        refuses = self._refuses()
        if refuses:
            raise Refused(refuses)
        # Before the flag: who dies in between leaves a host younger in its state than noted.
        self._note.write(file=self._file, flagged=True)
        self.host.write(self._file, CONTENT)

    def _is_there(self) -> bool:
        try:
            with self.host.directory(os.path.dirname(self._file)) as directory:
                return directory.status(os.path.basename(self._file)) is not None
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise Failed(f"{self._file}: {error.strerror}") from None

    def _since_change(self) -> "float | None":
        """Seconds since we changed the flag to what it is; None where others did, or nobody."""
        note = self._note.read()
        if note is None or note.get("file") != self._file:
            return None
        return self._note.age(note) if note.get("flagged") == self._is_there() else None

    def _age_by_hand(self) -> float:
        with self.host.directory(os.path.dirname(self._file)) as directory:
            status = directory.status(os.path.basename(self._file))
        # By a clock that may have been set since: a flag from the future is no new one.
        return abs(time.time() - status.st_mtime) if status else 0.0

    def _refuses(self) -> str:
        if self._file == NOT_READY:
            return f"{NOT_READY} is edgetune's own mark of a host that is drained: name another"
        place = os.path.dirname(self._file)
        try:
            with self.host.directory(place) as directory:
                status = directory.status(os.path.basename(self._file))
        except (FileNotFoundError, NotADirectoryError):
            return f"this host has no directory {place}"
        except OSError as error:
            return f"{place}: {error.strerror}"
        if status and not stat.S_ISREG(status.st_mode):
            return f"{self._file} is not a plain file"
        why = self.host.why_not_writable(self._file)
        if why:
            return f"{self._file} cannot be written: {why}"
        mount = mount_over(self.host, os.path.realpath(self.host.real(place)))
        if mount and mount.type in VOLATILE:
            return (
                f"{place} is a {mount.type}, which a boot empties: the flag has to outlive a reboot"
            )
        return ""


DRAIN = Flag
