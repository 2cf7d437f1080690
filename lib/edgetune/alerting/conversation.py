# SPDX-License-Identifier: Apache-2.0
"""HTTP with one member of a cluster of Alertmanager, within one deadline for all of it."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import Any

from edgetune import clock
from edgetune.alertmanager import Alertmanager
from edgetune.errors import EdgetuneError
from edgetune.net.connection import Tls
from edgetune.net.http import NetError, Service
from edgetune.sanitize import shortened
from edgetune.secret_files import authorization

_API = "/api/v2"
_SHOWN = 200


class AlertmanagerError(EdgetuneError):
    """Alertmanager did not answer, not in time, or not as it does."""


class DeclinedError(AlertmanagerError):
    """Alertmanager answered that it does not do what was asked."""


class Conversation:
    """Requests over one connection, until ``deadline`` (of ``clock.monotonic``).

    InputError if the file of a secret cannot be used.
    """

    def __init__(self, settings: Alertmanager, url: str, deadline: float) -> None:
        self._url, self._deadline = url, deadline
        login = authorization(
            settings.bearer_token_file,
            settings.username,
            settings.password_file,
            "configuration",
            inside="alertmanager.",
        )
        tls = Tls(settings.ca_file, settings.certificate_file, key_file=settings.key_file)
        self._service = Service(url, login.headers, login.secrets, tls.context)

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        self._service.close()

    def ask(self, method: str, path: str, body: object = None) -> tuple[Any, float]:
        """The answer's JSON (None without a body), and Alertmanager's clock in epoch seconds.

        AlertmanagerError if it did not answer, or answered no JSON; DeclinedError if it refused.
        """
        try:
            answer = self._service.tell(method, _API + path, self._deadline, body)
        except NetError as error:
            raise self.failed(str(error)) from None
        if not 200 <= answer.status < 300:
            told = self._service.shown(answer.body.decode("utf-8", "replace"), _SHOWN)
            why = f"{answer.status} {answer.reason} to {method}: {told}"
            raise DeclinedError(shortened(f"{self._url}: {why}"))
        try:
            document = answer.document() if answer.body else None
        except ValueError:
            raise self.failed("its answer is no JSON") from None
        return document, _clock(answer.headers.get("date"))

    def failed(self, why: str) -> AlertmanagerError:
        """The error that says of this member why it is of no use, to be raised."""
        return AlertmanagerError(shortened(f"{self._url}: {why}"))


def _clock(date: str | None) -> float:
    """What a header says, else our own clock."""
    try:
        return parsedate_to_datetime(date or "").timestamp()
    except (TypeError, ValueError):
        return clock.wall()
