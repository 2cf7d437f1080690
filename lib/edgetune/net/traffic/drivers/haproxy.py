# SPDX-License-Identifier: Apache-2.0
"""The HAProxies of a PoP, each over its runtime API."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from edgetune.base import clock
from edgetune.base.addresses import canonical_url
from edgetune.base.fields import Field
from edgetune.net.connection import Tls
from edgetune.net.traffic.driver import Server
from edgetune.net.traffic.haproxy_backend import HaproxyBackend, shown_certificate
from edgetune.net.traffic.several import Part, Several

_ADDRESS = (
    r"(tcp|tls)://([^/\s:\[\]]+|\[[0-9A-Fa-f]*:[0-9A-Fa-f:.]*(%[A-Za-z0-9_.-]+)?\])"
    r":[1-9][0-9]{0,4}|unix:///\S+"
)
_FILE = r"/[!-~]*"
# Seconds for a certificate, which is asked for beside all else.
_SHOWN_WITHIN = 5.0
_TLS = ("ca_file", "certificate_file", "server_name")


class Haproxy(Several):
    """One or more HAProxies over their runtime API, and in each one or more backends. A server is
    withdrawn by ``drain`` and isolated by ``maint``.

    A host is out of traffic when all HAProxies and backends that have its server say so. What one
    HAProxy has in a backend, every other one has to have there, too. A backend may lack hosts.
    """

    fields = {
        "address": Field(
            "where the runtime API is: `tcp://HOST:PORT`, `tls://HOST:PORT` or `unix:///PATH`, or "
            "a list of these; an IPv6 address stands in brackets, with its zone if it is "
            "link-local",
            example="tls://10.20.0.3:9999",
            pattern=_ADDRESS,
            same=canonical_url,
            several=True,
        ),
        "backend": Field(
            "the backend in which the PoP's hosts are servers, or a list of backends",
            example="edges",
            pattern=r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}",
            several=True,
        ),
        "ca_file": Field(
            "for `tls`: file with the certificates that HAProxy's own is verified with, those of "
            "the system unless given",
            "/etc/edgetune/haproxy-ca.pem",
            _FILE,
            "",
            identifies=False,
        ),
        "certificate_file": Field(
            "for `tls`: file with the certificate that edgetune shows, and its key without a "
            "password",
            "/etc/edgetune/haproxy-client.pem",
            _FILE,
            "",
            identifies=False,
        ),
        "server_name": Field(
            "for `tls`: the name or IP address that HAProxy's certificate has to be for, that of "
            "`address` unless given",
            "lb.ams1.example.org",
            r"[A-Za-z0-9:]([A-Za-z0-9.:-]{0,251}[A-Za-z0-9])?",
            "",
            identifies=False,
        ),
        "agent_checks": Field(
            "whether servers may have an agent check that is enabled: an agent that answers "
            "`ready`, `drain` or `maint` undoes a drain, and HAProxy does not tell what agents "
            "answer; `permitted` vouches that none of these words is answered",
            "permitted",
            "refused|permitted",
            "refused",
            identifies=False,
        ),
    }
    advice = "let edgetune set states of servers: a socket of level admin"
    override_advice = (
        "stop it until the rollout is over, by `disable agent BACKEND/SERVER` on HAProxy's socket; "
        "or give agent_checks: permitted in load_balancer: of the inventory, if no agent answers "
        "ready, drain or maint"
    )

    @classmethod
    def misfits(cls, fields: Mapping[str, str]) -> Mapping[str, str]:
        uses_tls = any(each.startswith("tls://") for each in fields["address"].split(" "))
        given = [name for name in _TLS if fields[name]]
        if given and not uses_tls:
            return {given[0]: "is given, but no address begins with tls://"}
        return {}

    def __init__(
        self,
        address: str,
        backend: str,
        ca_file: str = "",
        certificate_file: str = "",
        server_name: str = "",
        agent_checks: str = "refused",
    ) -> None:
        tls = Tls(ca_file, certificate_file, server_name)
        self._tls, self._addresses = tls, address.split(" ")
        self._trusts_agents = agent_checks == "permitted"
        places = itertools.product(address.split(" "), backend.split(" "))
        super().__init__(
            [Part(f"{own}/{name}", name, HaproxyBackend(own, name, tls)) for own, name in places]
        )

    def servers(self) -> Mapping[str, Server]:
        told = super().servers()
        if not self._trusts_agents:
            return told
        return {name: replace(own, overridden_by="") for name, own in told.items()}

    def certificates(self) -> Mapping[str, bytes]:
        found = {}
        for address in self._addresses:
            if address.startswith("tls://"):
                with suppress(OSError):
                    deadline = clock.monotonic() + _SHOWN_WITHIN
                    found[address] = shown_certificate(address, deadline, self._tls)
        return found


DRIVER = Haproxy
