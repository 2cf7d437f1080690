# SPDX-License-Identifier: Apache-2.0
"""The files of the boot hook: which a host has to have, and whether it has them."""

import sys
from typing import Sequence

from edgetune.agent.host import Host
from edgetune.agent.protocol import Unsupported
from edgetune.agent.vocabulary.places import AGENT, INIT_SCRIPT, RC_SCRIPT, UNIT, UNIT_LINK

PYTHON = sys.executable or "/usr/bin/python3"
"""What runs the hook."""


def probe_hook(host: Host) -> None:
    """Unsupported when this host's init is none that we know."""
    if host.init == "other":
        raise Unsupported(
            "nothing can keep it over a boot: no systemd, nothing runs /etc/init.d/S??*"
        )


def hook_files(host: Host) -> Sequence[str]:
    """Its files on a host with this init, beside our copy."""
    known = {"systemd": (UNIT, UNIT_LINK), "sysv": (INIT_SCRIPT,), "rc": (RC_SCRIPT,)}
    return known.get(host.init, ())


def hook_installed(host: Host) -> bool:
    """Whether the next boot will run it."""
    files = hook_files(host)
    return bool(files) and all(host.exists(name) for name in (*files, AGENT))
