# SPDX-License-Identifier: Apache-2.0
"""What installs kernels: a file here for each package manager."""

from edgetune.agent.host import Host
from edgetune.agent.package_managers.base import PackageManager
from edgetune.agent.package_managers.dpkg import Dpkg
from edgetune.agent.package_managers.rpm import Rpm
from edgetune.agent.protocol import Unsupported


def package_manager(host: Host) -> PackageManager:
    """That of a host; Unsupported where it is none that we know."""
    for kind in (Dpkg, Rpm):
        if host.program(kind.program):
            return kind(host)
    raise Unsupported("it has neither dpkg nor rpm")
