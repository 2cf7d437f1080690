# SPDX-License-Identifier: Apache-2.0
"""StackStorm's API (version 1), as an action calls it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from edgetune.documents.reading import taken
from edgetune.errors import NoAnswerError, StoreError

Kind = TypeVar("Kind")

TIMEOUT = 15
"""Seconds for one answer."""
TRIES = 6
_PAUSE = 0.5
AWAY = (500, 502, 503, 504)
"""Answers of a StackStorm whose database is away, and of a proxy whose StackStorm is."""


class StackStorm:
    """The API that an environment names, with an API key or else with the action's own token.

    gunicorn closes a connection that is idle for two seconds, maybe as the next request is sent;
    and services are restarted. So a read is tried ``TRIES`` times in 15 s. Any other request is
    tried again only if it never reached StackStorm. StoreError without a URL.
    """

    def __init__(self, environment: Mapping[str, str], api_key: str | None = None) -> None:
        import requests
        from requests.adapters import HTTPAdapter
        from urllib3.util import Retry

        url = environment.get("ST2_ACTION_API_URL") or environment.get("ST2_API_URL")
        if not url:
            raise StoreError("records: st2 is configured, but ST2_ACTION_API_URL is not set")
        self.url = url.rstrip("/")
        if not self.url.endswith("/v1"):
            self.url += "/v1"
        self._session = requests.Session()
        # A proxy of the environment is not for the API beside us.
        self._session.trust_env = False
        again = Retry(
            TRIES - 1,
            backoff_factor=_PAUSE,
            status_forcelist=AWAY,
            allowed_methods=["GET"],
            raise_on_status=False,
        )
        self._session.mount(self.url, HTTPAdapter(max_retries=again))
        # Without authentication StackStorm has no user to tell of, and answers 500.
        self._session.mount(f"{self.url}/user", HTTPAdapter())
        token = environment.get("ST2_ACTION_AUTH_TOKEN") or environment.get("ST2_AUTH_TOKEN")
        if api_key:
            self._session.headers["St2-Api-Key"] = api_key
        elif token:
            self._session.headers["X-Auth-Token"] = token

    def call(self, method: str, path: str, none: Sequence[int] = (), **more: Any) -> Any:
        """The answer's JSON; None for a status in ``none``.

        NoAnswerError if StackStorm did not answer, StoreError if it refused.
        """
        import requests

        where = f"{method} {path}"
        try:
            answer = self._session.request(method, self.url + path, timeout=TIMEOUT, **more)
            if answer.status_code in none:
                return None
            if answer.status_code in AWAY:
                raise NoAnswerError(f"{where}: {answer.status_code} {answer.reason}")
            answer.raise_for_status()
            return answer.json()
        except (requests.ConnectionError, requests.Timeout) as error:
            raise NoAnswerError(f"{where}: {error}") from None
        except (requests.RequestException, ValueError) as error:
            raise StoreError(f"{where}: {error}") from None

    def close(self) -> None:
        """Close the connections to the API."""
        self._session.close()


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
