# SPDX-License-Identifier: Apache-2.0
"""What this host tells of itself through the textfile collector of Prometheus' node_exporter."""

import contextlib
import re
from typing import Sequence

from edgetune.agent.disk import NEW_FILE, opened
from edgetune.agent.host import Host
from edgetune.agent.protocol import TUNING, Refused
from edgetune.agent.vocabulary.places import STATE

KEPT = STATE + "/textfile"
"""Holds the directory that the file is kept in."""
NAME = "edgetune.prom"
BOOT_ID = "[0-9A-Za-z-]{1,100}"
BOOT = "edgetune_boot_info", "The boot that this host runs, by the boot_id of its kernel."
APPLIED = "edgetune_applied_info", "A tuning of edgetune that stands here, wholly or in part."


class Textfile:
    """The file ``edgetune.prom`` in a directory of the host, while it is kept."""

    def __init__(self, host: Host) -> None:
        self._host = host

    @property
    def directory(self) -> str:
        """Where it is kept; "" while it is not."""
        try:
            return self._host.kept(KEPT)[0].decode().strip()
        except (OSError, Refused, UnicodeDecodeError):
            return ""

    def keep(self, directory: str) -> None:
        """Keep it there from now on; with "" no more. It is written next. OSError as it comes."""
        was = self.directory
        if was and was != directory:
            with contextlib.suppress(FileNotFoundError):
                self._remove(was)
        if not directory:
            self._host.remove(KEPT)
        elif was != directory:
            self._host.make_directory(STATE, 0o700)
            self._host.write(KEPT, directory.encode() + b"\n", 0o600)

    def write(self, tunings: Sequence[str]) -> str:
        """Write it anew with the ``tunings`` that stand; why it is not there, "" when it is.

        One that cannot be replaced is removed where that is possible: it may tell of another boot.
        """
        directory = self.directory
        if not directory:
            return ""
        try:
            with opened(self._host.root, directory, shared=True) as place:
                place.replace(NAME, text(self._host.boot_id, tunings).encode(), NEW_FILE)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._remove(directory)
            return f"{directory}/{NAME}: {error.strerror}"
        return ""

    def _remove(self, directory: str) -> None:
        with opened(self._host.root, directory, shared=True) as place:
            place.remove(NAME)


def text(boot_id: str, tunings: Sequence[str]) -> str:
    """The file. What Prometheus could not read is left out: it would take the rest along."""
    boots = [f'boot_id="{boot_id}"'] if re.fullmatch(BOOT_ID, boot_id) else []
    applied = [f'tuning="{name}"' for name in tunings if re.fullmatch(TUNING, name)]
    return _metric(*BOOT, boots) + _metric(*APPLIED, applied)


def _metric(name: str, means: str, labels: Sequence[str]) -> str:
    head = f"# HELP {name} {means}\n# TYPE {name} gauge\n" if labels else ""
    return head + "".join(f"{name}{{{each}}} 1\n" for each in labels)
