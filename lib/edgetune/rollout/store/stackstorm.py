# SPDX-License-Identifier: Apache-2.0
"""StackStorm's API (version 1), as an action calls it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from edgetune.base import clock
from edgetune.base.documents.reading import taken
from edgetune.base.errors import NoAnswerError, StoreError
from edgetune.net.http import Answer, NetError, Service, UnreachedError, query_of

Kind = TypeVar("Kind")

TIMEOUT = 15.0
"""Seconds for one answer."""
PAUSES = (0.0, 1.0, 2.0, 4.0, 8.0)
"""Seconds before what may be asked again is asked again."""
AWAY = (500, 502, 503, 504)
"""Answers of a StackStorm whose database is away, and of a proxy whose StackStorm is."""
_LIMIT = 64 << 20


class StackStorm:
    """The API that an environment names, with an API key or else with the action's own token.

    gunicorn closes a connection that is idle for two seconds, maybe as the next request is sent;
    and services are restarted. So a read is tried again after each of ``PAUSES``. Any other request
    is tried again only if it never reached StackStorm. StoreError without a URL.
    """

    def __init__(self, environment: Mapping[str, str], api_key: str | None = None) -> None:
        url = environment.get("ST2_ACTION_API_URL") or environment.get("ST2_API_URL")
        if not url:
            raise StoreError("records: st2 is configured, but ST2_ACTION_API_URL is not set")
        self.url = url.rstrip("/")
        if not self.url.endswith("/v1"):
            self.url += "/v1"
        token = environment.get("ST2_ACTION_AUTH_TOKEN") or environment.get("ST2_AUTH_TOKEN") or ""
        login = {"St2-Api-Key": api_key} if api_key else {"X-Auth-Token": token} if token else {}
        self._service = Service(self.url, login, login.values(), limit=_LIMIT)

    def call(
        self,
        method: str,
        path: str,
        none: Sequence[int] = (),
        params: Mapping[str, str] | None = None,
        document: object = None,
    ) -> Any:
        """The answer's JSON to a document; None for a status in ``none``.

        NoAnswerError if StackStorm did not answer, StoreError if it refused.
        """
        where, path = f"{method} {path}", path + query_of(params or {})
        for pause in (*PAUSES, None):
            may_repeat = method == "GET"
            try:
                ends = clock.monotonic() + TIMEOUT
                answer = self._service.tell(method, path, ends, document)
                if answer.status in none:
                    return None
                if answer.status not in AWAY:
                    return self._document(where, answer)
                problem = f"{answer.status} {answer.reason}"
            except NetError as error:
                problem = str(error)
                may_repeat |= isinstance(error, UnreachedError)
            if pause is None or not may_repeat:
                raise NoAnswerError(f"{where}: {problem}")
            clock.sleep(pause)
        raise AssertionError("the last pause is None")

    def close(self) -> None:
        """Close the connection to the API."""
        self._service.close()

    def _document(self, where: str, answer: Answer) -> Any:
        if not 200 <= answer.status < 300:
            text = answer.body.decode("utf-8", "replace")
            told = self._service.shown(f"{answer.status} {answer.reason}: {text}")
            raise StoreError(f"{where}: {told}")
        try:
            return answer.document()
        except ValueError:
            raise StoreError(f"{where}: its answer is no JSON") from None


def entry(kind: type[Kind], answer: Any) -> Kind:
    """What StackStorm answered, as a document of this kind; StoreError where it lacks a part."""
    try:
        return taken(kind, answer)
    except (TypeError, AttributeError) as error:
        raise StoreError(f"StackStorm's answer is no {kind.__name__}: {error}") from None


def entries(kind: type[Kind], answer: Any) -> list[Kind]:
    """The same of a list; StoreError where it is none."""
    if not isinstance(answer, list):
        raise StoreError(f"StackStorm's answer is no list of {kind.__name__}")
    return [entry(kind, each) for each in answer]
