# SPDX-License-Identifier: Apache-2.0
"""``ready``: what the host's own health check says."""

import os
from ipaddress import ip_address

from edgetune.agent.host import Host, room_or_not
from edgetune.agent.protocol import AnotherMachine, Json, Request
from edgetune.agent.readings import addresses
from edgetune.agent.verbs.sessions import sessions
from edgetune.agent.vocabulary.grammar import LINE
from edgetune.agent.vocabulary.places import NOT_READY


def run(host: Host, request: Request) -> Json:
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
    ports = request.wholes("ports", 1, 65535)
    address = request.optional("address", LINE)
    request.done()
    if address:
        own = [each.address for each in addresses(host)]
        if ip_address(address) not in map(ip_address, own):
            raise AnotherMachine(f"this machine has {', '.join(own)}, and not {address}")
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
        return {
            "changed": changed,
            "ready": host.ready,
            "sessions": sessions(host, ports),
        }


def _mark_not_ready(host: Host, rollout: str) -> None:
    with room_or_not():
        host.replace(NOT_READY, f"{rollout}\n".encode())
        return
    if host.ready:
        host.replace(NOT_READY, b"")
