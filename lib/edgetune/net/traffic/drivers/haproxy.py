# SPDX-License-Identifier: Apache-2.0
"""The HAProxies of a PoP, each over its runtime API, as if they were one load balancer.

A server is out of traffic when every part that has it withdrew it, and it serves when every part
sends it requests: each question is answered by the worst of them. A part that does not answer
leaves them all unanswered. A change is asked of all parts at once, so one that is away keeps none
of the others from changing; the error names those that did not.

Where the parts withdrew a server in different ways, the word of the whole is one for each of them:
``drain at tcp://10.20.0.3:9999/edges, ready at tcp://10.20.0.4:9999/edges``.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Callable, TypeVar

from edgetune.base import clock
from edgetune.base.addresses import canonical_url
from edgetune.base.dataclass import dataclass
from edgetune.base.errors import DrainError
from edgetune.base.fields import Field
from edgetune.net.connection import Tls
from edgetune.net.traffic.driver import Balancer, DrainDriver, Server
from edgetune.net.traffic.haproxy_backend import HaproxyBackend, shown_certificate

_READY = "ready"
_AT, _BETWEEN = " at ", ", "

Result = TypeVar("Result")


@dataclass(frozen=True)
class Part:
    """One of them, by a name without spaces; those of one ``role`` have the same servers."""

    name: str
    role: str
    balancer: Balancer


class Several(DrainDriver):
    """All parts; one alone is as it is."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts

    def servers(self) -> Mapping[str, Server]:
        answers, failed = _each(self._parts, lambda part: part.balancer.servers())
        if failed:
            raise DrainError("; ".join(failed.values()))
        if len(answers) == 1:
            return answers[self._parts[0].name]
        names = dict.fromkeys(server for shown in answers.values() for server in shown)
        return {name: _joined(name, self._shown(answers, name)) for name in names}

    def withdraw(self, server: str) -> None:
        self._change(server, lambda part: part.balancer.withdraw(server))

    def isolate(self, server: str) -> None:
        self._change(server, lambda part: part.balancer.isolate(server))

    def restore(self, server: str, withdrawn: str = "") -> None:
        words = _words(withdrawn)
        usual = "" if words else withdrawn
        self._change(
            server, lambda part: part.balancer.restore(server, words.get(part.name, usual))
        )

    def set_weight(self, server: str, weight: int) -> None:
        self._change(server, lambda part: part.balancer.set_weight(server, weight))

    def refuses_changes(self) -> str:
        answers, failed = _each(self._parts, lambda part: part.balancer.refuses_changes())
        problems = "; ".join(filter(None, [*failed.values(), *answers.values()]))
        if failed:
            raise DrainError(problems)
        return problems

    def answering(self) -> tuple[DrainDriver, str]:
        answers, failed = _each(self._parts, lambda part: part.balancer.servers())
        if not (failed and answers):
            return self, ""
        rest = copy.copy(self)
        rest._parts = [part for part in self._parts if part.name in answers]
        return rest, "; ".join(failed.values())

    def _shown(
        self, answers: Mapping[str, Mapping[str, Server]], server: str
    ) -> dict[str, Server | None]:
        """By part, a server that it has, or that another one of its role has."""
        roles = {part.role for part in self._parts if server in answers[part.name]}
        names = [part.name for part in self._parts if part.role in roles]
        return {name: answers[name].get(server) for name in names}

    def _change(self, server: str, change: Callable[[Part], None]) -> None:
        if len(self._parts) == 1:
            return change(self._parts[0])
        answers, failed = _each(self._parts, lambda part: part.balancer.servers())
        having = [part for part in self._parts if server in answers.get(part.name, ())]
        roles = {part.role for part in having}
        lacking = [
            f"{part.name} has no server {server!r}"
            for part in self._parts
            if part.name in answers and part not in having
            if part.role in roles or not (having or failed)
        ]
        problems = [*failed.values(), *lacking, *_each(having, change)[1].values()]
        if problems:
            raise DrainError("; ".join(problems))
        return None


def _each(
    parts: Sequence[Part], ask: Callable[[Part], Result]
) -> tuple[dict[str, Result], dict[str, str]]:
    """Answers of parts, and why others gave none, by name. All are asked at once: one that hangs
    takes the time of no other."""
    results: dict[str, Result] = {}
    failed: dict[str, str] = {}
    with ThreadPoolExecutor(max(1, len(parts))) as pool:
        for part, answer in [(part, pool.submit(ask, part)) for part in parts]:
            try:
                results[part.name] = answer.result()
            except DrainError as error:
                failed[part.name] = str(error)
    return results, failed


def _joined(name: str, parts: Mapping[str, Server | None]) -> Server:
    """The worst of what the parts show."""
    servers = {part: view for part, view in parts.items() if view is not None}
    views, is_whole = [*servers.values()], len(servers) == len(parts)
    addresses = {view.address for view in views}
    counts = [view.sessions for view in views]
    known = [count for count in counts if count is not None]
    weights = {view.weight for view in views}
    any_withdrawn = any(view.withdrawn for view in views)
    all_withdrawn = is_whole and all(view.withdrawn for view in views)
    return replace(
        views[0],
        withdrawn=_word({part: view.withdrawn for part, view in servers.items()}),
        leaving=any(view.leaving for view in views) or (any_withdrawn and not all_withdrawn),
        up=is_whole and all(view.up for view in views),
        sessions=sum(known) if is_whole and len(known) == len(counts) else None,
        address=addresses.pop() if len(addresses) == 1 else "",
        checked=all(view.checked for view in views),
        passing=is_whole and all(view.passing for view in views),
        idle=_reasons({part: view.idle for part, view in servers.items()}),
        state=_word({part: view.state or view.withdrawn for part, view in servers.items()}),
        weight=weights.pop() if is_whole and len(weights) == 1 else None,
        overridden_by=_reasons({part: view.overridden_by for part, view in servers.items()}),
        parts=parts,
    )


def _word(words: Mapping[str, str]) -> str:
    """One word for all parts, or one for each of them."""
    if len({*words.values()}) == 1:
        return next(iter(words.values()))
    return _BETWEEN.join(f"{word or _READY}{_AT}{part}" for part, word in words.items())


def _reasons(whys: Mapping[str, str]) -> str:
    """One reason for all parts, or that of each part which has one."""
    if len({*whys.values()}) == 1:
        return next(iter(whys.values()))
    return _BETWEEN.join(f"{why}{_AT}{part}" for part, why in whys.items() if why)


def _words(withdrawn: str) -> dict[str, str]:
    """By part, how it had withdrawn a server ("" for not at all); {} for one word of all."""
    if _AT not in withdrawn:
        return {}
    pairs = [each.partition(_AT) for each in withdrawn.split(_BETWEEN)]
    return {part: "" if word == _READY else word for word, _, part in pairs}


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
            [Part(f"{at}/{name}", name, HaproxyBackend(at, name, tls)) for at, name in places]
        )

    def servers(self) -> Mapping[str, Server]:
        servers = super().servers()
        if not self._trusts_agents:
            return servers
        return {name: replace(server, overridden_by="") for name, server in servers.items()}

    def certificates(self) -> Mapping[str, bytes]:
        certificates = {}
        for address in self._addresses:
            if address.startswith("tls://"):
                with suppress(OSError):
                    deadline = clock.monotonic() + _SHOWN_WITHIN
                    certificates[address] = shown_certificate(address, deadline, self._tls)
        return certificates


DRIVER = Haproxy
