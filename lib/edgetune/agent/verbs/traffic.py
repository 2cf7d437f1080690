# SPDX-License-Identifier: Apache-2.0
"""Requests kept away from this host: ``ready``, ``sessions`` and ``drain``."""

import os
from ipaddress import ip_address
from typing import Sequence

from edgetune.agent.drains import DRAINS, open_drain
from edgetune.agent.host import Host, room_or_not
from edgetune.agent.protocol import AnotherMachine, Failed, Json, Request
from edgetune.agent.readings import addresses
from edgetune.agent.vocabulary.grammar import LINE
from edgetune.agent.vocabulary.places import NOT_READY


def ready(host: Host, request: Request) -> Json:
    """Let the host's own health check say "not ready", or let it decide again; also after a boot.

    The marker is one line, the rollout's id. A full disk stops neither: the marker is empty then,
    and where no epoch was ever seen this one is not remembered (nothing can be applied there).
    ``sessions`` counts what is open on ``ports``: a load balancer that was reloaded does not
    know those of its former process. A machine none of whose interfaces has the ``address`` that
    the load balancer sends requests to raises AnotherMachine: it may be in service.
    """
    epoch = request.epoch()
    rollout = request.text("rollout", LINE)
    ready = request.flag("ready")
    ports = request.ports()
    address = request.optional("address", LINE)
    request.done()
    if address:
        here = [each.address for each in addresses(host)]
        if ip_address(address) not in map(ip_address, here):
            raise AnotherMachine(f"this machine has {', '.join(here)}, and not {address}")
    with host.lock():
        with room_or_not():
            host.fence(epoch)
        changed = host.ready != ready
        host.make_directory(os.path.dirname(NOT_READY))
        if ready:
            host.remove(NOT_READY)
            # Whoever removed it before us may have been killed before that was durable.
            with host.directory(os.path.dirname(NOT_READY)) as directory:
                directory.sync()
        else:
            _mark_not_ready(host, rollout)
        return {"changed": changed, "ready": host.ready, "sessions": open_sessions(host, ports)}


def _mark_not_ready(host: Host, rollout: str) -> None:
    with room_or_not():
        host.replace(NOT_READY, f"{rollout}\n".encode())
        return
    if host.ready:
        host.replace(NOT_READY, b"")


# Of include/net/tcp_states.h: established, FIN sent, and closed by the other side only.
OPEN_STATES = ("01", "04", "08")

# How 127.0.0.1 (also inside IPv6) and ::1 end in /proc/net/tcp on a little-endian host.
LOOPBACK = ("0100007F", "00000000000000000000000001000000")


def sessions(host: Host, request: Request) -> Json:
    """Count what is open on ``ports``; nothing is changed."""
    ports = request.ports()
    request.done()
    return {"sessions": open_sessions(host, ports)}


def open_sessions(host: Host, ports: Sequence[int]) -> int:
    """TCP connections to the ports, from elsewhere, over which something can still come or go."""
    if host.system == "freebsd":
        from edgetune.agent.freebsd import readings

        return readings.sessions(host, ports)
    rows = [
        line.split()[1:4]
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in host.text(table).splitlines()[1:]
    ]
    ends = tuple(f":{port:04X}" for port in ports)
    return sum(
        local.endswith(ends)
        and state in OPEN_STATES
        and not remote.rpartition(":")[0].endswith(LOOPBACK)
        for local, remote, state in rows
    )


WORD = "([a-z][a-z_]{0,39})?"


def drain(host: Host, request: Request) -> Json:
    """``do`` is ``look``, ``withdraw``, ``isolate`` or ``restore``, by a way of DRAINS.

    The answer tells how the host stands after that. ``sessions`` counts what is open on ``ports``,
    and is null where there are none: nobody can tell then. A changed state that does not show is
    Failed; a look needs no epoch. A full disk stops no change where an epoch was seen before.
    """
    epoch = request.epoch()
    by = request.text("by", "|".join(DRAINS))
    do = request.text("do", "look|withdraw|isolate|restore")
    wanted = request.text("withdrawn", WORD)
    ports = request.ports()
    drain = open_drain(host, by, request.inside("fields"))
    request.done()
    if do != "look":
        with host.lock():
            with room_or_not():
                host.fence(epoch)
            try:
                if do == "restore":
                    drain.restore(wanted)
                elif do == "isolate":
                    drain.isolate()
                else:
                    drain.withdraw()
            except OSError as error:
                raise Failed(str(error)) from None
            now = drain.look().withdrawn
            if now != wanted if do == "restore" else not now:
                raise Failed(f"this host is {now or 'in service'} after {do}")
    return dict(drain.look()._asdict(), sessions=open_sessions(host, ports) if ports else None)
