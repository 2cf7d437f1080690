# SPDX-License-Identifier: Apache-2.0
"""Asks the agent on many hosts at once: one SSH connection and one round trip for each."""

from __future__ import annotations

import json
import resource
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from queue import Empty, SimpleQueue
from threading import BoundedSemaphore
from typing import Callable

from edgetune import AGENT_PROTOCOL
from edgetune.agent import bundle
from edgetune.agent.connections import CONNECTIONS, unanswered
from edgetune.base import clock
from edgetune.base.errors import HostError, InputError
from edgetune.net.hosts.answers import longest, read_answer
from edgetune.net.hosts.connection import Jumps, Login
from edgetune.net.hosts.conversation import BOOTSTRAP, converse, greet
from edgetune.net.hosts.ssh_files import load_known_hosts, load_login_key
from edgetune.net.hosts.workers import Ask, Question, shared
from edgetune.net.result import HostResult
from edgetune.site.config import Config
from edgetune.site.inventory import Host

_AGAIN = 1.0
# Each is connected to dozens of times, and a process may have a thousand files open.
_AT_ONCE = 16
# A sweep of thousands of hosts is stored in some dozens of parts, not in thousands.
_TOGETHER = 1.0
AHEAD = 8
"""To so many times the hosts that are talked to is connected at most, where they may be silent."""
LOGINS = 16
# OpenSSH turns some away where more than 10 have yet to log in (MaxStartups 10:30:100).
_LOGINS_AT_ONCE = 8
# The kernel sends again after 1, 3, 7 and 15 s what is lost on the way.
_SECONDS = 17.0


@lru_cache(maxsize=2)
def packed(source: bytes) -> bytes:
    """A program as ``BOOTSTRAP`` reads it; what the program itself reads comes after it.

    Remembered: to pack the agent takes 20 ms.
    """
    data = zlib.compress(source)
    return b"%d\n%s" % (len(data), data)


class Fleet:
    """Hosts reached over SSH with verified host keys, ``config.ssh_threads`` at a time."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._agent = packed(bundle.make())
        self._known = load_known_hosts(config.ssh_known_hosts)
        load_login_key(config)

    def ask(
        self,
        hosts: Sequence[Host],
        verb: str,
        request: Callable[[Host], Mapping[str, object]],
        timeout: float = 60,
        patience: float = 0,
    ) -> dict[str, HostResult]:
        """Send ``verb`` to every host with its own request; failures are data, not exceptions.

        A host has ``ssh_timeout`` s until its agent is started, and ``timeout`` s from then on. For
        ``patience`` (s, of the whole call) a host that cannot be reached is asked again.
        """
        parts = self.ask_in_parts(hosts, verb, request, timeout, patience)
        results = {host: result for part in parts for host, result in part}
        return {host.name: results[host] for host in hosts}

    def ask_in_parts(
        self,
        hosts: Sequence[Host],
        verb: str,
        request: Callable[[Host], Mapping[str, object]],
        timeout: float = 60,
        patience: float = 0,
        ahead: bool = False,
    ) -> Iterator[list[tuple[Host, HostResult]]]:
        """The same, in lists of those hosts that answered within a second of each other.

        With ``ahead`` more hosts are connected to than are talked to, so that those that are silent
        keep no others waiting. It is for what changes nothing: a host may get its request later
        than that was made.
        """
        if not hosts:
            return
        end = clock.monotonic() + patience
        done: SimpleQueue[Future[tuple[Host, HostResult]]] = SimpleQueue()

        def ask_until(ask: Ask, host: Host) -> tuple[Host, HostResult]:
            again = False
            while True:
                result = ask(Question(host, verb, dict(request(host)), timeout, again))
                if result.reason != "unreachable" or clock.monotonic() + _AGAIN > end:
                    return host, result
                clock.sleep(_AGAIN)
                again = True

        times = _times_ahead(self._config.ssh_threads) if ahead else 1
        with (
            shared(self.asking, self._config, len(hosts), times) as ask,
            self._pool(len(hosts), times) as pool,
        ):
            asked = [pool.submit(ask_until, ask, host) for host in hosts]
            for future in asked:
                future.add_done_callback(done.put)
            left = len(asked)
            try:
                while left:
                    part = _together(done, left)
                    left -= len(part)
                    yield [future.result() for future in part]
            finally:
                # Without permission for one host the others are not asked any more.
                for future in asked:
                    future.cancel()

    def lost_connections(self, hosts: Sequence[Host], ports: Sequence[int]) -> dict[str, str]:
        """By host, which of many connections to it, each from a port of its own, were lost.

        A host whose service cannot be reached from here at all is logged in to as often.
        """
        if not hosts:
            return {}
        with self._login() as login, self._pool(min(_AT_ONCE, len(hosts))) as pool:
            reasons = pool.map(lambda host: lost_connections(login, host, ports), hosts)
            return {host.name: why for host, why in zip(hosts, reasons) if why}

    @contextmanager
    def asking(self, seats: int = 0) -> Iterator[Ask]:
        """Asks one host in this process, with the login of one call.

        With ``seats`` it may be called by any number of threads: so many of them talk at a time,
        and the others connect.
        """
        with self._login(seats) as login:

            def ask(question: Question) -> HostResult:
                if not question.again:
                    return self._ask_one(login, question)
                try:
                    # A certificate may live for minutes, and somebody renews it meanwhile.
                    renewed = replace(login, key=load_login_key(self._config))
                except InputError as error:  # what other hosts answered is not lost for it
                    name = question.host.name
                    return HostResult(name, error=str(error), reason="unreachable")
                return self._ask_one(renewed, question)

            yield ask

    @contextmanager
    def _login(self, seats: int = 0) -> Iterator[Login]:
        """The login of one call: its key is read anew, its jump hosts are left in the end."""
        config = self._config
        key, command = load_login_key(config), config.ssh_command or BOOTSTRAP
        with Jumps() as jumps:
            login = (config.ssh_user, command, key, self._known, config.ssh_timeout, jumps)
            yield Login(*login, seats=BoundedSemaphore(seats) if seats else None)

    def _pool(self, most: int, ahead: int = 1) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(min(self._config.ssh_threads * ahead, most))

    def _ask_one(self, login: Login, question: Question) -> HostResult:
        host, verb = question.host, question.verb
        document = dict(question.document, protocol=AGENT_PROTOCOL, verb=verb)
        data = self._agent + json.dumps(document).encode()
        try:
            raw = converse(login, host, data, question.timeout, longest(verb))
            return read_answer(host.name, verb, document, raw)
        except HostError as error:
            return HostResult(host.name, error=f"answer to {verb}: {error}", reason="garbage")
        except Exception as error:  # noqa: BLE001 - a host makes paramiko raise whatever it likes
            text = str(error) or type(error).__name__
            return HostResult(host.name, error=f"{host.address}: {text}", reason="unreachable")


def _times_ahead(threads: int) -> int:
    """So that connections are half of the files that the process may open, or less."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, min(AHEAD, most // 2 // threads)) if most != resource.RLIM_INFINITY else AHEAD


def _together(
    done: SimpleQueue[Future[tuple[Host, HostResult]]], most: int
) -> list[Future[tuple[Host, HostResult]]]:
    """The next one, and what comes within ``_TOGETHER`` s of it, up to one that raised."""
    part = [done.get()]
    end = clock.monotonic() + _TOGETHER
    with suppress(Empty):
        while len(part) < most and part[-1].exception() is None:
            part.append(done.get(timeout=max(0.0, end - clock.monotonic())))
    return part


def lost_connections(login: Login, host: Host, ports: Sequence[int]) -> str:
    """What was lost of many connections to a host, in words; "" for nothing.

    Each is from a port of its own: one connection proves one queue of a card.

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
    few = {port: count for (_, port), count in lost.items() if count < CONNECTIONS}
    if not few:
        return _lost_logins(login, host)
    return ", ".join(
        f"{count} of {CONNECTIONS} connections to {host.address}:{port} get no answer"
        for port, count in few.items()
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
