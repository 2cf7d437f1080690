# SPDX-License-Identifier: Apache-2.0
"""What gives prefixes of clients a congestion control of their own: a file here for each way."""

from edgetune.agent.appliers.base import Applier
from edgetune.agent.appliers.file import File
from edgetune.agent.appliers.routes import Routes
from edgetune.agent.host import Host

APPLIERS = {kind.name: kind for kind in (Routes, File)}


def applier(host: Host, name: str) -> Applier:
    """One of APPLIERS."""
    return APPLIERS[name](host)
