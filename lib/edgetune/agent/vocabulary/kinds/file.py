# SPDX-License-Identifier: Apache-2.0
"""Whole files."""

import os
import re
from typing import Optional

from edgetune.agent.vocabulary.grammar import Text, Wrong
from edgetune.agent.vocabulary.kind import Field, Kind, is_protected
from edgetune.agent.vocabulary.places import HOOKS, NOT_READY, OURS, SETUP, STATE
from edgetune.agent.vocabulary.values import Target, Value

MOST_BYTES = 64 * 1024

NAME = r"[A-Za-z0-9_@+-][A-Za-z0-9_@+:,.-]{0,199}"

NOT_OURS = (
    *("/proc", "/sys", "/dev", "/run", "/tmp"),
    *("/boot", "/efi", "/etc/fstab", "/etc/crypttab", "/etc/ld.so.preload"),
    *("/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow"),
    *("/etc/ssh", "/etc/dropbear", "/etc/pam.d", "/etc/sudoers", "/etc/sudoers.d"),
    # Of FreeBSD; rc.conf sets up its network.
    *("/var/run", "/etc/master.passwd", "/etc/pwd.db", "/etc/spwd.db", "/etc/rc.conf"),
    *("/etc/rc.conf.local", "/usr/local/etc/sudoers", "/usr/local/etc/sudoers.d"),
    *("/usr/local/etc/doas.conf", "/usr/local/etc/ssh"),
    *(STATE, SETUP, NOT_READY),
)
"""Where no tuning writes.

What a boot loses, what boots the host or starts each program, who may log in and become root, what
the agent keeps, and what it is told by the host's own people.
"""

UNIT_FILES = re.compile(r"/systemd/system(?:\.[a-z]+)?/|^/etc/init\.d/")
"""Where files that belong to a unit are, or below a directory such as ``nginx.service.d``."""


def path_refusal(path: str) -> Optional[str]:
    """Why no tuning writes a file; None when one may, as far as can be said without a host."""
    for place in NOT_OURS:
        if path == place or path.startswith(place + "/"):
            return f"no tuning writes below {place}"
    if os.path.basename(path).startswith(OURS) or path in HOOKS:
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


def tidy(target: Target, value: Value) -> Value:
    """A text in UTF-8 of at most ``MOST_BYTES``."""
    try:
        size = len(str(value).encode())
    except UnicodeEncodeError:
        raise Wrong("is not UTF-8") from None
    if size > MOST_BYTES:
        raise Wrong(f"is longer than {MOST_BYTES} bytes")
    return value


KIND = Kind(
    name="file",
    target={"path": Field(rf"(/{NAME}){{1,20}}", "Absolute path of a plain file.", path_refusal)},
    value=Text(r"[\s\S]*\n", exact=True, wrong="does not end with a newline"),
    tidy=tidy,
    touches=lambda target: [target["path"]],
    systems=("linux", "freebsd"),
    disruption="live",
    order=170,
    summary="A plain file with a whole text; one that is there keeps its mode and its owner.",
    takes="The whole text of the file in UTF-8. It ends with a newline and has at most 64 KiB.",
    example={"path": "/etc/nginx/conf.d/tuned.conf", "value": "aio threads;\n"},
)
