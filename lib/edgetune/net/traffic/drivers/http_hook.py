# SPDX-License-Identifier: Apache-2.0
"""A service of the operator that steers traffic."""

from __future__ import annotations

from edgetune.base.addresses import canonical_url
from edgetune.base.errors import DrainError
from edgetune.base.fields import Field
from edgetune.base.secret_files import LOGIN_FIELDS, HttpLogin
from edgetune.net.json_service import JsonService
from edgetune.net.traffic.hook import HookDriver


def _same(url: str) -> str:
    """Scheme, host and port in one spelling, and the path as it is."""
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{canonical_url(f'{scheme}://{host}')}{slash}{path}"


class HttpHook(HookDriver):
    """A service of yours. ``GET`` of its URL tells the document of a hook. ``POST`` of
    ``{"do": "withdraw", "server": "e01", "withdrawn": ""}`` changes a server, and answers 200 and
    a document of any kind.

    ``do`` may be ``isolate`` and ``restore``, too. A server that is restored with a word in
    ``withdrawn`` is withdrawn in that way. Where the service tells weights, ``do`` may be
    ``weigh``, with a ``weight``.
    """

    fields = {
        "url": Field(
            "where the service is; two PoPs with the same URL share their servers",
            example="https://traffic.example.org/edgetune/ams1",
            pattern=r"https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?",
            same=_same,
        ),
        **{name: LOGIN_FIELDS[name] for name in ("bearer_token_file", "ca_file")},
    }
    advice = "let edgetune change servers there"

    def __init__(self, url: str, bearer_token_file: str, ca_file: str) -> None:
        self._where = self._url = url
        self._token_file, self._ca_file = bearer_token_file, ca_file

    def _asked(self, deadline: float) -> object:
        with self._service(deadline) as service:
            return service.ask()

    def _tell(
        self, do: str, server: str, withdrawn: str, deadline: float, weight: int | None
    ) -> None:
        document = {"do": do, "server": server, "withdrawn": withdrawn}
        with self._service(deadline) as service:
            service.ask(document=document if weight is None else {**document, "weight": weight})

    def _service(self, deadline: float) -> JsonService:
        login = HttpLogin(self._token_file).authorization("load_balancer")
        return JsonService(
            self._url,
            login,
            self._ca_file,
            deadline,
            lambda problem: DrainError(f"{self._where}: {problem}"),
        )


DRIVER = HttpHook
