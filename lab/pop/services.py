# SPDX-License-Identifier: Apache-2.0
"""The client: one process in a network namespace of its own."""

from __future__ import annotations

import subprocess
import sys

from . import network
from .layout import Layout


def start_client(
    namespace: int, hosts: int, pops: int, address: str, layout: Layout, application: bool
) -> subprocess.Popen[bytes]:
    """The load generator of all PoPs, silent until "on" is written to its standard input.

    `application`: it asks that of each host, too.
    """
    with network.inside(namespace), layout.console("client").open("ab") as log:
        command = [sys.executable, "-E", "-s", "-S", "-m", "lab.pop.client"]
        files = (layout.client, layout.client_lost, layout.client_unready)
        command += [str(word) for word in (hosts, pops, address, *files)]
        command += ["application"] if application else []
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
