# SPDX-License-Identifier: Apache-2.0
"""What boots a host: a class here for each boot loader."""

from edgetune.agent.boot_loaders.base import BootLoader
from edgetune.agent.boot_loaders.bls import GrubBls, SystemdBoot
from edgetune.agent.boot_loaders.grub import Grub
from edgetune.agent.host import Host
from edgetune.agent.protocol import Unsupported

BOOT_LOADERS = (SystemdBoot, GrubBls, Grub)


def boot_loader(host: Host) -> BootLoader:
    """That of a host; Unsupported where it is none that we know."""
    for kind in BOOT_LOADERS:
        if kind.is_here(host):
            return kind(host)
    known = ", ".join(kind.name for kind in BOOT_LOADERS)
    raise Unsupported(f"its boot loader is none that is known here ({known})")
