# SPDX-License-Identifier: Apache-2.0
"""Asks many BMCs at once: one conversation with each."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any, Callable

from edgetune.bmc.checking import check
from edgetune.bmc.client import Answer, Client, trust
from edgetune.bmc.credentials import Login
from edgetune.bmc.evidence import evidence
from edgetune.bmc.payload import MAX_ERROR, BmcError, said
from edgetune.bmc.planning import plan
from edgetune.bmc.reset import reset
from edgetune.bmc.setting import set_attributes
from edgetune.bmc.system import find_system, refuse_another
from edgetune.config import Config
from edgetune.errors import InputError
from edgetune.hosts.result import HostResult
from edgetune.inventory import Bmc, Host

_Request = Mapping[str, Any]
_VERBS: Mapping[str, Callable[[Client, Answer, _Request], dict[str, Any]]] = {
    "plan": plan,
    "set": set_attributes,
    "check": check,
    "reset": reset,
    "evidence": evidence,
}


class Bmcs:
    """BMCs reached over Redfish, ``config.bmc_threads`` at a time."""

    def __init__(self, config: Config, credentials: Callable[[str], Login]) -> None:
        self._config, self._credentials = config, credentials
        self._context = trust(config)

    def ask(
        self,
        hosts: Sequence[Host],
        verb: str,
        request: Callable[[Host], _Request],
        timeout: float | None = None,
        permit: Callable[[], None] = lambda: None,
    ) -> dict[str, HostResult]:
        """Send ``verb`` to the BMC of every host; failures are data, not exceptions.

        ``request`` is called just before each conversation; a BmcError of its own is the answer.
        ``permit`` is called before each change that is sent, and ends it all by what it raises.
        With a ``system`` in its request a BMC is asked only about the machine of that UUID. Each
        has ``timeout`` seconds (``bmc_timeout`` unless given). The first one of each name
        of credentials goes alone: where they are refused, no other BMC is tried with them.
        """
        limit = self._config.bmc_timeout if timeout is None else timeout
        without = [host for host in hosts if host.bmc is None]
        results = [_failure(host, "refused", "has no BMC in the inventory") for host in without]
        logins = _Logins(self._credentials)

        def ask_one(host: Host, bmc: Bmc) -> HostResult:
            try:
                login = logins.of(bmc)
                client = Client(bmc.address, login, self._context, limit, permit=permit)
                data = _converse(client, bmc, verb, request(host), logins)
            except BmcError as error:
                text = said(f"{bmc.address}: {error}", MAX_ERROR)
                return _failure(host, error.reason, text)
            return HostResult(host.name, data)

        with ThreadPoolExecutor(min(self._config.bmc_threads, max(1, len(hosts)))) as pool:
            groups: dict[str, list[tuple[Host, Bmc]]] = {}
            for host in hosts:
                if host.bmc is not None:
                    groups.setdefault(host.bmc.credentials, []).append((host, host.bmc))
            first = {pool.submit(ask_one, *group[0]): group[1:] for group in groups.values()}
            rest: list[Future[HostResult]] = []
            for done in as_completed(first):
                rest += [pool.submit(ask_one, *pair) for pair in first[done]]
            results += [future.result() for future in (*first, *rest)]
        return {result.host: result for result in results}


def _converse(
    client: Client, bmc: Bmc, verb: str, request: _Request, logins: _Logins
) -> dict[str, Any]:
    try:
        with client:
            system = find_system(client, bmc.system)
            refuse_another(system, request.get("system", ""))
            return _VERBS[verb](client, system, request)
    except BmcError as error:
        if client.has_changed and error.reason not in ("failed", "refused"):
            raise BmcError("unknown", str(error)) from None
        if error.reason == "auth" and not client.is_logged_in:
            logins.refuse(bmc)
        raise


class _Logins:
    """What to log in with in one call; what was refused once is not tried elsewhere."""

    def __init__(self, credentials: Callable[[str], Login]) -> None:
        self._credentials = credentials
        self._known: dict[str, Login] = {}
        self._useless: dict[str, str] = {}
        self._lock = threading.Lock()

    def of(self, bmc: Bmc) -> Login:
        name = bmc.credentials
        with self._lock:
            if name not in self._known and name not in self._useless:
                try:
                    self._known[name] = self._credentials(name)
                except InputError as error:
                    self._useless[name] = str(error)
            if name in self._useless:
                raise BmcError("auth", self._useless[name])
            return self._known[name]

    def refuse(self, bmc: Bmc) -> None:
        with self._lock:
            name = bmc.credentials
            self._useless.setdefault(name, f"not asked: {bmc.address} refused {name!r}")


def _failure(host: Host, reason: str, text: str) -> HostResult:
    return HostResult(host.name, error=text, reason=reason)
