# SPDX-License-Identifier: Apache-2.0
"""Asks many BMCs at once: one conversation with each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Callable

from edgetune.net.bmc.answers import Answer
from edgetune.net.bmc.checking import check
from edgetune.net.bmc.client import Client, trust
from edgetune.net.bmc.credentials import Login
from edgetune.net.bmc.evidence import evidence
from edgetune.net.bmc.logins import Logins
from edgetune.net.bmc.payload import MAX_ERROR, BmcError, said
from edgetune.net.bmc.planning import plan
from edgetune.net.bmc.request import Request
from edgetune.net.bmc.reset import facts, reset
from edgetune.net.bmc.setting import set_attributes
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
