# SPDX-License-Identifier: Apache-2.0
"""Whole files."""

import os
import stat
from typing import Dict, List, Optional

from edgetune.agent.host import Host
from edgetune.agent.journal import Journal
from edgetune.agent.kinds import FileKept
from edgetune.agent.protocol import Refused, Unsupported
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.file import KIND, MOST_BYTES
from edgetune.agent.vocabulary.values import Target, Value, alike, described

STRONGER = ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")
"""Where directories such as ``sysctl.d`` are looked for: a file masks its namesakes further on."""


class File(FileKept):
    """A plain file with a whole text; one that is there keeps what it has beside that."""

    kind = KIND

    def probe_stored(self, setting: Setting, tuning: str) -> None:
        """Unsupported when another file masks it."""
        path = setting.target["path"]
        for other in _stronger(path):
            if self.host.exists(other):
                raise Unsupported(f"{other} masks {path}")

    def runtime(self, target: Target) -> Value:
        """Its description for people; empty without one.

        Unsupported for all but a plain file of that very path.
        """
        return self._described(target) or ""

    def persistent(self, target: Target) -> Optional[Value]:
        return self._described(target)

    def same(self, now: Value, wanted: Value) -> bool:
        """Whether a file that is described has the text that is wanted."""
        return bool(now) and alike(now, wanted)

    def files(self, journal: Journal, settings: List[Setting]) -> Dict[str, str]:
        return {setting.target["path"]: str(setting.value) for setting in settings}

    def reload(self) -> None:
        """Let systemd read its files anew: it may be one of them."""
        if self.host.init == "systemd":
            self.host.run("systemctl", "daemon-reload")

    def _described(self, target: Target) -> Optional[str]:
        path = target["path"]
        _check_plain(self.host, path)
        try:
            data, status = self.host.kept(path)
            return described(data, status.mode, status.uid, status.gid)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise Unsupported(f"{path}: {error.strerror}") from None
        except Refused as why:
            raise Unsupported(str(why)) from None


def _check_plain(host: Host, path: str) -> None:
    real = os.path.realpath(host.path(path))
    if real != host.path(path):
        raise Unsupported(f"{path} is behind a link: name the file itself")
    if not host.exists(path):
        return
    status = os.lstat(real)
    if not stat.S_ISREG(status.st_mode):
        raise Unsupported(f"{path} is not a plain file")
    if status.st_size > MOST_BYTES:
        raise Unsupported(f"{path} is longer than {MOST_BYTES} bytes")


def _stronger(path: str) -> List[str]:
    """The files that would mask one of a directory such as /usr/lib/sysctl.d."""
    if not os.path.dirname(path).endswith(".d"):
        return []
    directory = next((top for top in STRONGER if path.startswith(top + "/")), None)
    tops = STRONGER[: STRONGER.index(directory)] if directory else ()
    return [top + path[len(directory or "") :] for top in tops]
