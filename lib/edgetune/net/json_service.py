# SPDX-License-Identifier: Apache-2.0
"""Asks a service for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Callable

from edgetune.base.errors import EdgetuneError
from edgetune.base.secret_files import Authorization
from edgetune.net.connection import Tls
from edgetune.net.http import Answer, Client, NetError, Service, query_of

MOST_BYTES = 64 << 20


class JsonService(Client):
    """One service at ``url``, asked until ``deadline`` of ``clock.monotonic``.

    Answers have to be whole, in JSON, and of status 200. Errors are made by ``wrong`` of a text.
    """

    def __init__(
        self,
        url: str,
        login: Authorization,
        ca_file: str,
        deadline: float,
        wrong: Callable[[str], EdgetuneError],
    ) -> None:
        headers = {"Accept": "application/json", **login.headers}
        self._service = Service(url, headers, login.secrets, Tls(ca_file).context, MOST_BYTES)
        self._deadline, self._wrong = deadline, wrong

    def ask(
        self,
        path: str = "",
        query: Iterable[tuple[str, str]] = (),
        refusal: int = 200,
        document: object = None,
    ) -> Any:
        """The document at a path below the URL, also that of status ``refusal``; or the answer to
        a document there."""
        method = "GET" if document is None else "POST"
        try:
            answer = self._service.tell(method, path + query_of(query), self._deadline, document)
        except NetError as error:
            raise self._wrong(str(error)) from None
        if answer.status not in (200, refusal):
            shown = self._service.shown(_error_text(answer))
            raise self._wrong(f"{path} answers {answer.status}{shown}".strip())
        try:
            return answer.document()
        except ValueError:
            kind = answer.headers.get("content-type", "nothing that says what it is")
            shown = self._service.shown(kind)
            raise self._wrong(f"{path} answers no whole JSON, but {shown}".strip()) from None


def _error_text(answer: Answer) -> str:
    """What an error says of itself, in ``detail`` (Django REST framework) or ``error``."""
    if 300 <= answer.status < 400:
        return ": it sends to another place; give that as url"
    try:
        document = answer.document()
    except ValueError:
        return f": {answer.reason}" if answer.reason else ""
    names = ("detail", "error") if isinstance(document, Mapping) else ()
    return f": {next((document[name] for name in names if name in document), document)}"
