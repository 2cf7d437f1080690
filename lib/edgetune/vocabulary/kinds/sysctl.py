# SPDX-License-Identifier: Apache-2.0
"""Parameters of the kernel."""

import re
from typing import List

from edgetune.vocabulary.grammar import LINE, Text
from edgetune.vocabulary.kind import Field, Kind
from edgetune.vocabulary.targets import parameter, sysctl_path
from edgetune.vocabulary.values import Target, one_line

COUPLED = (
    ("vm/dirty_bytes", "vm/dirty_ratio"),
    ("vm/dirty_background_bytes", "vm/dirty_background_ratio"),
)
"""Parameters of which one becomes zero when the other is set; zero itself cannot be written."""


def key_of(target: Target) -> str:
    """The name of the parameter, with dots or slashes."""
    return target["key"]


_OF_DEVICE = re.compile(r"dev/([a-z][a-z0-9_]*)/([0-9]+)/.*")
"""Parameters of FreeBSD's devices: those of a card can reset it."""


def parameters(target: Target) -> List[str]:
    """The files of the parameter, and of the one that is coupled to it.

    FreeBSD has no such files; the parameter goes by their names there, too.
    """
    path = sysctl_path(key_of(target))
    pair = next((pair for pair in COUPLED if path in pair), (path,))
    device = _OF_DEVICE.fullmatch(path)
    return [parameter(own) for own in pair] + (
        [f"interface {device.group(1)}{device.group(2)}"] if device else []
    )


KIND = Kind(
    name="sysctl",
    target={
        "key": Field(
            # Never two of . and / in a row: swapped, they could lead out of /proc/sys.
            r"[a-z0-9_][A-Za-z0-9_-]*([./][A-Za-z0-9_-]+)*",
            "Name of the parameter as sysctl(8) has it, with dots or slashes.",
        )
    },
    value=Text(LINE),
    tidy=one_line,
    touches=parameters,
    disruption="live",
    order=160,
    systems=("linux", "freebsd"),
    summary="A kernel parameter, as sysctl(8) has them.",
    takes="A value as `sysctl -w` takes it. Several numbers stand with spaces between them.",
    example={"key": "net.ipv4.tcp_rmem", "value": "4096 131072 6291456"},
)
