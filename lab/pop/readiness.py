# SPDX-License-Identifier: Apache-2.0
"""Waiting until the PoP is really there: SSH answers, and HAProxy has seen each server healthy,
and the client has begun to count."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from .layout import Address, LabError
from .load_balancer import Balancers
from .machines import Machines
from .router import Router

SECONDS = 60.0
# Of virtual machines: some times what they take on two idle cores.
MACHINE_SECONDS = 600.0
TELL_SECONDS = 15.0


def wait_for_ssh(hosts: Sequence[Address], machines: Machines, tell: Callable[[str], None]) -> None:
    """Until each host shows its SSH banner; call it in the controller's namespace.

    `tell` is told now and then which machines still boot. LabError when one of them goes off.
    """
    began = time.monotonic()
    told = began + TELL_SECONDS
    waiting = list(hosts)
    while waiting := [host for host in waiting if not _shows_banner(host.ip)]:
        for host in waiting:
            if host.is_machine:
                machines.expect_on(host.name)
        passed = time.monotonic() - began
        seconds = MACHINE_SECONDS if waiting[0].is_machine else SECONDS
        if passed > seconds:
            says = machines.told(waiting[0].name) if waiting[0].is_machine else ""
            says = f"; its serial port says: {says}" if says else ""
            raise LabError(f"host {waiting[0].name} did not answer SSH in {seconds:.0f} s{says}")
        if time.monotonic() > told:
            told += TELL_SECONDS
            tell(f"{', '.join(host.name for host in waiting)}: booting for {passed:.0f} s")
        time.sleep(0.02)


def _shows_banner(address: str) -> bool:
    """The short timeout is for a host that is still without address: its SYN is sent again soon."""
    try:
        with socket.create_connection((address, 22), timeout=0.1) as connection:
            connection.settimeout(2.0)
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def wait_for_servers(balancer: Balancers | Router) -> None:
    """Until HAProxy's own checks have passed on all servers, or the router hears them."""
    end = time.monotonic() + SECONDS
    while True:
        waiting = balancer.unchecked()
        if waiting == []:
            return
        if time.monotonic() > end:
            raise LabError(f"nothing is sent to these servers: {waiting}")
        time.sleep(0.02)


def wait_for_client(counts: Path) -> None:
    """Until the client has written its first counts."""
    end = time.monotonic() + SECONDS
    while not counts.exists():
        if time.monotonic() > end:
            raise LabError(f"the client did not begin in {SECONDS:.0f} s")
        time.sleep(0.02)
