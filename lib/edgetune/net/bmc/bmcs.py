# SPDX-License-Identifier: Apache-2.0
"""Asks many BMCs at once: one conversation with each.

A wrong password meets few of them, once each, and locks no account.
"""

from __future__ import annotations

import ssl
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any, Callable

from edgetune.base.durations import duration
from edgetune.base.errors import InputError
from edgetune.net.bmc.answers import Answer, Request
from edgetune.net.bmc.client import Client, trust
from edgetune.net.bmc.credentials import Login
from edgetune.net.bmc.machine import evidence, facts, reset
from edgetune.net.bmc.payload import MAX_ERROR, BmcError, said
from edgetune.net.bmc.planning import plan
from edgetune.net.bmc.setting import check, set_attributes
from edgetune.net.bmc.system import find_system, refuse_another
from edgetune.net.result import HostResult
from edgetune.site.config import Config
from edgetune.site.inventory import Bmc, Host

_Request = Mapping[str, Any]
_VERBS: Mapping[str, Callable[[Client, Answer, Request], dict[str, object]]] = {
    "facts": facts,
    "plan": plan,
    "set": set_attributes,
    "check": check,
    "reset": reset,
    "evidence": evidence,
}

# As many BMCs as took a login prove that the password is right.
_PROOF = 2


class Bmcs:
    """BMCs reached over Redfish, ``config.bmc_threads`` at a time."""

    def __init__(self, config: Config, credentials: Callable[[str], Login]) -> None:
        self._config, self._credentials = config, credentials

    @cached_property
    def _context(self) -> ssl.SSLContext:
        try:
            return trust(self._config)
        except InputError as error:
            raise BmcError("tls", str(error)) from None

    def ask(
        self,
        hosts: Sequence[Host],
        verb: str,
        request: Callable[[Host], _Request],
        timeout: float | None = None,
        permit: Callable[[], None] = lambda: None,
        refusals: int = 1,
    ) -> dict[str, HostResult]:
        """Send ``verb`` to the BMC of every host; failures are data, not exceptions.

        ``request`` is called once the BMC is logged in to; a BmcError of its own is the answer.
        ``permit`` is called before each change that is sent, and ends it all by what it raises.
        With a ``system`` in its request a BMC is asked only about the machine of that UUID. Each
        has ``timeout`` seconds (``bmc_timeout`` unless given), and waits as long at most until
        it is its turn to log in; as many ``refusals`` stop that (``Logins``).
        """
        limit = self._config.bmc_timeout if timeout is None else timeout
        logins = Logins(self._credentials, limit, refusals)

        def ask_one(host: Host) -> HostResult:
            bmc = host.bmc
            if bmc is None:
                return _failure(host, "refused", "has no BMC in the inventory")
            try:
                login = logins.of(bmc)
                turn = partial(logins.turn, bmc)
                client = Client(bmc.address, login, self._context, limit, permit=permit, turn=turn)
                data = _converse(client, bmc, verb, lambda: request(host))
            except BmcError as error:
                text = said(f"{bmc.address}: {error}", MAX_ERROR)
                return _failure(host, error.reason, text)
            return HostResult(host.name, data)

        with ThreadPoolExecutor(min(self._config.bmc_threads, max(1, len(hosts)))) as pool:
            return {result.host: result for result in pool.map(ask_one, hosts)}


def _converse(
    client: Client, bmc: Bmc, verb: str, request: Callable[[], _Request]
) -> dict[str, object]:
    try:
        with client:
            system = find_system(client, bmc.system)
            asked = Request(**request())
            refuse_another(system, asked.system)
            return _VERBS[verb](client, system, asked)
    except BmcError as error:
        is_unknown = client.has_changed and error.reason not in ("failed", "refused")
        reason = "unknown" if is_unknown else error.reason
        raise BmcError(reason, client.without_secrets(str(error))) from None


def _failure(host: Host, reason: str, text: str) -> HostResult:
    return HostResult(host.name, error=text, reason=reason)


class Logins:
    """What to log in with in one call, for all threads; nobody waits longer than ``patience`` s.

    With each name of credentials one BMC at a time is tried until a login was taken, and all at
    once from then on. As many as ``refusals`` stop a name, unless two BMCs took its login: then
    one that refuses it has its own reason. Where there are no credentials, none is tried.
    """

    def __init__(
        self, credentials: Callable[[str], Login], patience: float, refusals: int = 1
    ) -> None:
        self._credentials, self._patience, self._refusals = credentials, patience, refusals
        self._known: dict[str, Login] = {}
        self._unknown: dict[str, str] = {}
        self._trying: defaultdict[str, list[str]] = defaultdict(list)
        self._took: defaultdict[str, set[str]] = defaultdict(set)
        self._refused: defaultdict[str, list[str]] = defaultdict(list)
        self._changed = threading.Condition()

    def of(self, bmc: Bmc) -> Login:
        """User and password; BmcError ``auth`` where there are none, or they were refused."""
        name = bmc.credentials
        with self._changed:
            if name not in self._known and name not in self._unknown:
                try:
                    self._known[name] = self._credentials(name)
                except InputError as error:
                    self._unknown[name] = str(error)
            self._refuse_useless(name)
            return self._known[name]

    @contextmanager
    def turn(self, bmc: Bmc) -> Iterator[None]:
        """Log in inside of it; what a BmcError ``auth`` from there means for others is known.

        BmcError ``auth`` if they were refused meanwhile, ``busy`` if it never was the turn.
        """
        name, address = bmc.credentials, bmc.address
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_free(name), self._patience):
                waited = f"no BMC answered a login of {name!r} within {duration(self._patience)}"
                raise BmcError("busy", f"not asked: {waited}")
            self._refuse_useless(name)
            self._trying[name].append(address)
        try:
            yield
        except BmcError as error:
            if error.reason == "auth":
                self._refused[name].append(address)
                self._took[name].discard(address)
            raise
        else:
            self._took[name].add(address)
        finally:
            with self._changed:
                self._trying[name].remove(address)
                self._changed.notify_all()

    def _is_free(self, name: str) -> bool:
        """Whether to try, or to give up; not while one that is tried may prove a refused login."""
        return not self._trying[name] or bool(self._took[name] and not self._is_stopped(name))

    def _is_stopped(self, name: str) -> bool:
        return len(self._refused[name]) >= self._refusals and len(self._took[name]) < _PROOF

    def _refuse_useless(self, name: str) -> None:
        if name in self._unknown:
            raise BmcError("auth", self._unknown[name])
        if self._is_stopped(name) and not self._trying[name]:
            who = ", ".join(self._refused[name])
            raise BmcError("auth", f"not asked: {who} refused {name!r}")
