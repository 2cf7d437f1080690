# SPDX-License-Identifier: Apache-2.0
"""The load balancer and the client: one process each, in a network namespace of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from . import network
from .layout import Address, Layout

CONFIGURATION = Path(__file__).with_name("haproxy.cfg")


def start_load_balancer(
    namespace: int, hosts: Sequence[Address], layout: Layout
) -> subprocess.Popen[bytes]:
    """HAProxy with one server per host, of the host's name."""
    servers = "".join(f"    server {host.name} {host.ip}:80 check\n" for host in hosts)
    configuration = layout.disks / "haproxy.cfg"
    configuration.write_text(CONFIGURATION.read_text() + servers)
    with network.inside(namespace), layout.console("haproxy").open("ab") as log:
        command = ["haproxy", "-db", "-f", str(configuration)]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def start_client(namespace: int, hosts: int, layout: Layout) -> subprocess.Popen[bytes]:
    """The load generator, silent until "on" is written to its standard input."""
    with network.inside(namespace), layout.console("client").open("ab") as log:
        command = [sys.executable, "-E", "-s", "-S", "-m", "lab.pop.client"]
        command += [str(hosts), str(layout.client), str(layout.client_lost)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
