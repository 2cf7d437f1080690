# SPDX-License-Identifier: Apache-2.0
"""Asks a service for JSON, within bounds of time and size."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Callable

from edgetune.errors import EdgetuneError
from edgetune.files import load_json
from edgetune.sanitize import one_line, shortened
from edgetune.secret_files import Authorization

CONNECT = 5.0
"""Seconds to connect."""
MOST_BYTES = 64 << 20
_CHUNK = 1 << 18
_MOST_TOLD, _MOST_REASON = 200, 300
# With these words urllib3 begins, after a place that errors name already.
_CONNECTING = "Failed to establish a new connection: "
_LATE = "did not tell all in time"

Query = Sequence[tuple[str, str]]


class JsonService:
    """One service at ``url``, asked until ``deadline`` of ``time.monotonic``.

    Answers have to be whole, in JSON, and of status 200. It is never followed to another place: a
    token is for one service, and no error shows it. Errors are made by ``wrong`` of a text.
    """

    def __init__(
        self,
        url: str,
        login: Authorization,
        ca_file: str,
        deadline: float,
        wrong: Callable[[str], EdgetuneError],
    ) -> None:
        import requests

        self._url, self._ends, self._make, self._secrets = url, deadline, wrong, login.secrets
        self._session = requests.Session()
        # Neither a proxy nor a .netrc of the environment is meant for it.
        self._session.trust_env = False
        self._session.headers.update({"Accept": "application/json", **login.headers})
        self._session.verify = ca_file or True

    def __enter__(self) -> JsonService:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def get(self, path: str = "", query: Query = (), refusal: int = 200) -> Any:
        """The document at a path below the URL, also that of status ``refusal``."""
        return self._asked("GET", path, query, None, refusal)

    def post(self, document: object) -> Any:
        """What the URL answers to a document."""
        return self._asked("POST", "", (), document, 200)

    def _asked(self, method: str, path: str, query: Query, document: object, refusal: int) -> Any:
        import requests

        left = self._ends - time.monotonic()
        if left <= 0:
            raise self._wrong(_LATE)
        try:
            with self._session.request(
                method,
                f"{self._url}{path}",
                params=list(query),
                json=document,
                timeout=(min(CONNECT, left), left),
                stream=True,
                allow_redirects=False,
            ) as answer:
                body = self._body(answer)
        except (requests.RequestException, OSError) as error:
            raise self._wrong(silence(error)) from None
        if answer.status_code not in (200, refusal):
            raise self._wrong(f"{path} answers {answer.status_code}{_told(answer, body)}")
        try:
            return load_json(body.decode("utf-8"))
        except ValueError:
            kind = answer.headers.get("Content-Type", "nothing that says what it is")
            told = f"{path} answers no whole JSON, but {one_line(kind)[:_MOST_TOLD]}"
            raise self._wrong(told) from None

    def _body(self, answer: Any) -> bytes:
        parts, size = [], 0
        for part in answer.iter_content(_CHUNK):
            parts.append(part)
            size += len(part)
            if size > MOST_BYTES:
                raise self._wrong(f"answers more than {MOST_BYTES >> 20} MiB")
            if time.monotonic() > self._ends:
                raise self._wrong(_LATE)
        return b"".join(parts)

    def _wrong(self, problem: str) -> EdgetuneError:
        for secret in self._secrets:
            problem = problem.replace(secret, "...")
        return self._make(problem.strip())


def _told(answer: Any, body: bytes) -> str:
    """What an error says of itself, in ``detail`` (Django REST framework) or ``error``."""
    if 300 <= answer.status_code < 400:
        return ": it sends to another place; give that as url"
    try:
        told = load_json(body.decode("utf-8"))
    except ValueError:
        return f": {one_line(str(answer.reason))[:_MOST_TOLD]}" if answer.reason else ""
    names = ("detail", "error") if isinstance(told, Mapping) else ()
    detail = next((told[name] for name in names if name in told), told)
    return f": {one_line(str(detail))[:_MOST_TOLD]}"


def silence(error: Exception) -> str:
    """That nobody answers, and what went wrong below HTTP, without the layers that say it again."""
    while isinstance(error.args[0] if error.args else None, Exception):
        error = error.args[0]
    inner = getattr(error, "reason", None)
    if isinstance(inner, Exception):
        error = inner
    told = str(error).rpartition(_CONNECTING)[2] or type(error).__name__
    return shortened(f"does not answer: {told}", _MOST_REASON)
