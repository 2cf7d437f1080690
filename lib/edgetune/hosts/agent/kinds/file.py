# SPDX-License-Identifier: Apache-2.0
"""Whole files."""

import os
import re
import stat
from typing import TYPE_CHECKING, Dict, List, Optional

from edgetune.hosts.agent.contents import alike, described
from edgetune.hosts.agent.host import NOT_READY, STATE, Host
from edgetune.hosts.agent.kinds.file_kept import FileKept
from edgetune.hosts.agent.kinds.protected import is_protected
from edgetune.hosts.agent.protocol import Fields, Refused, Unsupported
from edgetune.hosts.agent.values import Target, Value

if TYPE_CHECKING:
    from edgetune.hosts.agent.journal import Journal
    from edgetune.hosts.agent.settings import Setting

MOST_BYTES = 64 * 1024

NAME = r"[A-Za-z0-9_@+-][A-Za-z0-9_@+:,.-]{0,199}"

NOT_OURS = (
    *("/proc", "/sys", "/dev", "/run", "/tmp"),
    *("/boot", "/efi", "/etc/fstab", "/etc/crypttab", "/etc/ld.so.preload"),
    *("/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow"),
    *("/etc/ssh", "/etc/dropbear", "/etc/pam.d", "/etc/sudoers", "/etc/sudoers.d"),
    *(STATE, NOT_READY),
)
"""Where no tuning writes.

What a boot loses, what boots the host or starts each program, who may log in and become root, and
what the agent keeps.
"""

UNIT_FILES = re.compile(r"/systemd/system(?:\.[a-z]+)?/|^/etc/init\.d/")
"""Where files that belong to a unit are, or below a directory such as ``nginx.service.d``."""

STRONGER = ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")
"""Where directories such as ``sysctl.d`` are looked for: a file masks its namesakes further on."""


class File(FileKept):
    """A plain file with a whole text; one that is there keeps its mode and its owner."""

    name = "file"
    target = {"path": rf"(/{NAME}){{1,20}}"}
    ordered = False

    @staticmethod
    def scope(target: Target) -> str:
        return f"file {target['path']}"

    @classmethod
    def check_value(cls, fields: Fields) -> Value:
        """A text of whole lines, at most ``MOST_BYTES`` long; its path is one of a tuning's."""
        why = _refusal(str(fields.inside("target").raw("path")))
        if why:
            raise fields.wrong("target.path", why)
        text = fields.raw("value")
        if not isinstance(text, str):
            raise fields.wrong("value", "must be a string")
        if not text.endswith("\n"):
            raise fields.wrong("value", "does not end with a newline")
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            raise fields.wrong("value", "is not UTF-8") from None
        if size > MOST_BYTES:
            raise fields.wrong("value", f"is longer than {MOST_BYTES} bytes")
        return text

    def probe_stored(self, setting: "Setting", tuning: str) -> None:
        """Unsupported when another file masks it."""
        path = setting.target["path"]
        for other in _stronger(path):
            if self.host.exists(other):
                raise Unsupported(f"{other} masks {path}")

    def runtime(self, target: Target) -> Value:
        """What is told of it; empty without one.

        Unsupported for all but a plain file of that very path.
        """
        return self._described(target) or ""

    def persistent(self, target: Target) -> Optional[Value]:
        return self._described(target)

    def same(self, now: Value, wanted: Value) -> bool:
        """Whether a file that is described has the text that is wanted."""
        return bool(now) and alike(now, wanted)

    def files(self, journal: "Journal", settings: List["Setting"]) -> Dict[str, str]:
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
            return described(data, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise Unsupported(f"{path}: {error.strerror}") from None
        except Refused as why:
            raise Unsupported(str(why)) from None


def _refusal(path: str) -> Optional[str]:
    from edgetune.hosts.agent.standby import INIT_SCRIPT, UNIT, UNIT_LINK  # which knows all kinds

    for place in NOT_OURS:
        if path == place or path.startswith(place + "/"):
            return f"no tuning writes below {place}"
    if os.path.basename(path).startswith("90-edgetune-") or path in (INIT_SCRIPT, UNIT, UNIT_LINK):
        return "is edgetune's own"
    unit = _protected_unit(path)
    return f"{unit} is needed to reach the host" if unit else None


def _protected_unit(path: str) -> Optional[str]:
    """The protected unit that a file would change; ``service.d`` is for each service."""
    place = UNIT_FILES.search(path)
    for name in path[place.end() :].split("/") if place else []:
        unit = re.sub(r"\.(d|wants|requires|upholds)$", "", name)
        if is_protected(unit) or (unit != name and "." not in unit):
            return name
    return None


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
    own = next((top for top in STRONGER if path.startswith(top + "/")), None)
    tops = STRONGER[: STRONGER.index(own)] if own else ()
    return [top + path[len(own or "") :] for top in tops]
