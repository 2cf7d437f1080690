# SPDX-License-Identifier: Apache-2.0
"""The client: one process in a network namespace of its own."""

from __future__ import annotations

import subprocess
import sys

from . import network
from .layout import Layout


def start_client(namespace: int, hosts: int, layout: Layout) -> subprocess.Popen[bytes]:
    """The load generator, silent until "on" is written to its standard input."""
    with network.inside(namespace), layout.console("client").open("ab") as log:
        command = [sys.executable, "-E", "-s", "-S", "-m", "lab.pop.client", str(hosts)]
        files = (layout.client, layout.client_lost, layout.client_unready)
        command += [str(path) for path in files]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
