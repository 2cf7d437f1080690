# SPDX-License-Identifier: Apache-2.0
"""Tunables that FreeBSD's kernel takes from its boot loader."""

import re
from typing import Optional

from edgetune.agent.vocabulary.grammar import Text
from edgetune.agent.vocabulary.kind import BOOT_ENTRY, Field, Kind

_FOR_BOOT = r"vfs\.(root|mountroot|zfs\.(recover|debug)).*|zfs_be.*|kern\.(geom|cam)\..*|.*\.ko"


def tunable_refusal(name: str) -> Optional[str]:
    """Why no tuning sets a tunable; None when one may."""
    needed = re.fullmatch(_FOR_BOOT, name)
    return f"{name} is needed to boot the host" if needed else None


KIND = Kind(
    name="loader.tunable",
    target={
        "tunable": Field(
            # With a dot: other variables tell the loader itself what to load and to boot.
            r"[a-z][a-z0-9_]*(\.[A-Za-z0-9_-]+)+",
            "Name of a tunable of the kernel or a driver, such as `hw.ix.rxd`.",
            tunable_refusal,
        )
    },
    # What the loader's own files would take for something else is left out, and what looks like an
    # option of a program or a path.
    value=Text(r"-?[A-Za-z0-9_][A-Za-z0-9_.:,-]{0,198}"),
    touches=lambda target: [BOOT_ENTRY],
    disruption="reboot",
    order=5,
    ordered=True,
    systems=("freebsd",),
    summary="A tunable that the boot loader hands to the kernel, in a file of /boot/loader.conf.d. "
    "A boot that nobody confirms takes it back; a kernel that it keeps from booting does not.",
    takes="The value, without quotes.",
    example={"tunable": "hw.ix.rxd", "value": "4096"},
)
