# SPDX-License-Identifier: Apache-2.0
"""Whether a host can be reached from each of many ports: one connection proves one queue."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from edgetune.hosts.agent.connections import CONNECTIONS, unanswered
from edgetune.hosts.connection import Login
from edgetune.hosts.conversation import greet
from edgetune.inventory import Host

LOGINS = 16
# OpenSSH turns some away where more than 10 have yet to log in (MaxStartups 10:30:100).
_LOGINS_AT_ONCE = 8
# The kernel sends again after 1, 3, 7 and 15 s what is lost on the way.
_SECONDS = 17.0


def lost_connections(login: Login, host: Host, ports: Sequence[int]) -> str:
    """What was lost of many connections to a host, in words; "" for nothing.

    They go to the ports on which it serves, and to no SSH server: that takes connections that
    do not log in for an attack (PerSourcePenalties, fail2ban). Where all of them are lost a
    firewall may keep us from the service, and we log in as often. So we do through a jump host.
    """
    if host.jump:
        return _lost_logins(login, host)
    try:
        lost = unanswered([(host.address, port) for port in ports], _SECONDS) if ports else {}
    except OSError as error:
        return f"{host.address}: {error}"
    told = {port: count for (_, port), count in lost.items() if count < CONNECTIONS}
    if not told:
        return _lost_logins(login, host)
    return ", ".join(
        f"{count} of {CONNECTIONS} connections to {host.address}:{port} get no answer"
        for port, count in told.items()
        if count
    )


def _lost_logins(login: Login, host: Host) -> str:
    with ThreadPoolExecutor(_LOGINS_AT_ONCE) as pool:
        failures = list(filter(None, pool.map(lambda _: _failure(login, host), range(LOGINS))))
    if not failures:
        return ""
    return f"{len(failures)} of {LOGINS} logins at {host.address} fail: {failures[0]}"


def _failure(login: Login, host: Host) -> str:
    try:
        greet(login, host)
    except Exception as error:  # noqa: BLE001 - a host makes paramiko raise whatever it likes
        return str(error) or type(error).__name__
    return ""
