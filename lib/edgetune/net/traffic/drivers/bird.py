# SPDX-License-Identifier: Apache-2.0
"""Hosts that announce a service address by BIRD 2 or 3."""

from __future__ import annotations

from edgetune.base.durations import read_duration
from edgetune.base.fields import Field
from edgetune.net.traffic.on_hosts import Agents, OnHosts, same_duration

_NAME = "[A-Za-z_][A-Za-z0-9_]{0,63}"
_PAIR = f"{_NAME}/{_NAME}"
_PATH = r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._-]{1,100}){2,20}"


class Bird(OnHosts):
    """BIRD on each host announces a service address. It is withdrawn in two steps: first announced
    with the community 65535:0 (GRACEFUL_SHUTDOWN), and once the host has no session, not at all.

    edgetune enables and disables protocols over BIRD's control socket. It neither restarts nor
    reconfigures BIRD. [Drain hosts that steer their own traffic](../how-to/bgp-drains.md) has the
    configuration.
    """

    by = "bird"
    fields = {
        "protocols": Field(
            "by address the protocol that announces it, and behind `/` the one that does so with "
            "65535:0; several with a comma between",
            example="anycast4/anycast4_leaving",
            pattern=f"{_PAIR}(,{_PAIR})*",
        ),
        "wait": Field(
            "how long a host is announced with 65535:0 at least before it is withdrawn",
            example="30s",
            pattern=r"[0-9][0-9a-z.]{0,20}",
            default="30s",
            same=same_duration,
        ),
        "peers": Field(
            "the BGP protocols of routers, with a comma between; a host serves while one of them "
            "is established; all BGP protocols unless given",
            example="router1,router2",
            pattern=f"{_NAME}(,{_NAME})*",
            default="",
        ),
        "file": Field(
            "the file on each host that tells the next start of BIRD whether the host is drained",
            example="/etc/bird/edgetune.conf",
            pattern=_PATH,
            default="/etc/bird/edgetune.conf",
        ),
        "socket": Field(
            "BIRD's control socket on each host",
            example="/run/bird/bird.ctl",
            pattern=_PATH,
            default="/run/bird/bird.ctl",
        ),
    }
    advice = "give BIRD that file, its include and a socket that obeys, on each host"

    def __init__(
        self, agents: Agents, protocols: str, wait: str, peers: str, file: str, socket: str
    ) -> None:
        sent = {
            "protocols": protocols.split(","),
            "wait": read_duration(wait),
            "peers": peers.split(",") if peers else [],
            "file": file,
            "socket": socket,
        }
        super().__init__(agents, sent)


DRIVER = Bird
