# SPDX-License-Identifier: Apache-2.0
"""Which silences are wanted, and what of that Alertmanager has (its API, version 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote

from edgetune import PACK
from edgetune.base import clock
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.reading import encoded, taken
from edgetune.base.errors import EdgetuneError
from edgetune.base.sanitize import shortened
from edgetune.net.connection import Tls
from edgetune.net.http import Client, NetError, Service
from edgetune.site.alertmanager import Alertmanager

Matchers = Mapping[str, str]
_API = "/api/v2"
PATIENCE = 3.0
"""Seconds for all hosts, all requests and all members of the cluster."""
_SILENCES = "/silences"
# Every alert lacks this label, so a matcher that excludes a value of it excludes none. A list of
# silences can be asked for by one whole matcher alone, and so it is that of a rollout.
_MARK = "edgetune_rollout"


class AlertmanagerError(EdgetuneError):
    """Alertmanager did not answer, not in time, or not as it does."""


class DeclinedError(AlertmanagerError):
    """Alertmanager answered that it does not do what was asked."""


class Conversation(Client):
    """Requests over one connection, until ``deadline`` (of ``clock.monotonic``).

    InputError if the file of a secret cannot be used.
    """

    def __init__(self, settings: Alertmanager, url: str, deadline: float) -> None:
        self._url, self._deadline = url, deadline
        login, tls = settings.authorization("configuration", "alertmanager."), Tls.of(settings)
        self._service = Service(url, login.headers, login.secrets, tls.context)

    def ask(self, method: str, path: str, body: object = None) -> tuple[Any, float]:
        """The answer's JSON (None without a body), and Alertmanager's clock in epoch seconds.

        AlertmanagerError if it did not answer, or answered no JSON; DeclinedError if it refused.
        """
        try:
            answer = self._service.tell(method, _API + path, self._deadline, body)
        except NetError as error:
            raise self.failed(str(error)) from None
        if not 200 <= answer.status < 300:
            text = self._service.shown(answer.body.decode("utf-8", "replace"))
            why = f"{answer.status} {answer.reason} to {method}: {text}"
            raise DeclinedError(shortened(f"{self._url}: {why}"))
        try:
            document = answer.document() if answer.body else None
        except ValueError:
            raise self.failed("its answer is no JSON") from None
        return document, answer.time or clock.wall()

    def failed(self, why: str) -> AlertmanagerError:
        """The error that says of this member why it is of no use, to be raised."""
        return AlertmanagerError(shortened(f"{self._url}: {why}"))


@dataclass(frozen=True)
class Wanted:
    """A host by the ``matchers`` of its alerts; ``comment`` is why it is silent, "" if it is not
    to be."""

    matchers: Matchers
    comment: str


def keep_silences(settings: Alertmanager, rollout: str, wanted: Sequence[Wanted]) -> str:
    """Put, renew and end silences of a rollout as they are wanted; "", or why that is not done.

    A silence ends by itself after the ``bound`` of the settings, by the clock of Alertmanager. This
    takes ``PATIENCE`` seconds at most and raises nothing: no rollout depends on it. The members
    of the cluster are asked in turn, each for its share of the time that is left.
    """
    problems = []
    end = clock.monotonic() + PATIENCE
    for left in range(len(settings.url), 0, -1):
        share = (end - clock.monotonic()) / left
        try:
            url = settings.url[-left]
            with Conversation(settings, url, clock.monotonic() + share) as member:
                _keep(member, settings.bound, rollout, wanted)
            return ""
        except EdgetuneError as error:
            problems.append(str(error))
    return shortened("; ".join(problems))


def _keep(member: Conversation, bound: float, rollout: str, wanted: Sequence[Wanted]) -> None:
    silences, now = _list(member, rollout)
    over: list[Silence] = []
    lasting: list[tuple[Wanted, Silence | None]] = []
    for each in wanted:
        alike = [silence for silence in silences if silence.labels == each.matchers]
        if each.comment:
            lasting.append((each, max(alike, key=lambda silence: silence.endsAt, default=None)))
        else:
            over += alike
    declined = _end(member, over)
    # Where the time is not enough for all, the next attempt begins with the others.
    for each, before in sorted(lasting, key=lambda pair: pair[1].endsAt if pair[1] else ""):
        _put(member, each, rollout, before, now, bound)
    # Alertmanager answers 500 for one that it has forgotten, or never had.
    for silence in _list(member, rollout)[0] if declined else ():
        if silence.id in declined:
            raise declined[silence.id]


def _end(member: Conversation, over: Sequence[Silence]) -> dict[str, DeclinedError]:
    """End silences; those that Alertmanager declined to end, by their ids."""
    declined = {}
    for silence in over:
        try:
            member.ask("DELETE", f"/silence/{quote(silence.id, safe='')}")
        except DeclinedError as error:
            declined[silence.id] = error
    return declined


def _put(
    member: Conversation,
    wanted: Wanted,
    rollout: str,
    before: Silence | None,
    now: float,
    bound: float,
) -> None:
    """Renew the silence before it, else put a new one."""
    try:
        _post(member, _document(wanted, rollout, before, now, bound))
    except DeclinedError:
        if not before:
            raise
        # It may have been forgotten since, or behind one address there are several members.
        _post(member, _document(wanted, rollout, None, now, bound))


def _list(member: Conversation, rollout: str) -> tuple[list[Silence], float]:
    """Those of a rollout that are not over, and Alertmanager's clock."""
    matcher = quote(f'{_MARK}!="{rollout}"')
    answer, now = member.ask("GET", f"{_SILENCES}?filter={matcher}")
    try:
        if not isinstance(answer, list):
            raise TypeError
        every = [taken(Silence, row) for row in answer]
        texts = [text for row in every for text in (row.id, row.startsAt, row.endsAt)]
        if not all(type(text) is str and text for text in texts):
            raise TypeError
    except (TypeError, LookupError, AttributeError):
        raise member.failed("its list of silences is none") from None
    mark = Matcher(_MARK, rollout, isEqual=False)
    ours = [row for row in every if row.createdBy == PACK and mark in row.matchers]
    return [row for row in ours if row.status.state != "expired"], now


def _post(member: Conversation, document: Mapping[str, object]) -> None:
    answer, _ = member.ask("POST", _SILENCES, document)
    if not isinstance(answer, dict) or not answer.get("silenceID"):
        raise member.failed("its answer to a silence names none")


def _document(
    wanted: Wanted, rollout: str, before: Silence | None, now: float, bound: float
) -> dict[str, object]:
    """What is posted: with the id and the start of the one before it is renewed."""
    matchers = [Matcher(label, value) for label, value in wanted.matchers.items()]
    return {
        **({"id": before.id} if before else {}),
        "matchers": encoded([*matchers, Matcher(_MARK, rollout, isEqual=False)]),
        "startsAt": before.startsAt if before else _written(now),
        "endsAt": _written(now + bound),
        "createdBy": PACK,
        "comment": wanted.comment,
    }


def _written(moment: float) -> str:
    at = datetime.fromtimestamp(moment, timezone.utc)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class Matcher:
    """A label that alerts have, or with ``isEqual`` false have not; a value may be a pattern."""

    name: str
    value: str
    isRegex: bool = False
    isEqual: bool = True


@dataclass(frozen=True)
class SilenceState:
    """``active``, ``pending`` or ``expired``."""

    state: str


@dataclass(frozen=True)
class Silence:
    """All alerts that match all ``matchers`` are silent between two times (RFC 3339)."""

    id: str
    matchers: list[Matcher]
    status: SilenceState
    startsAt: str
    endsAt: str
    createdBy: str

    @property
    def labels(self) -> Matchers:
        """What alerts have that it silences."""
        return {m.name: m.value for m in self.matchers if m.isEqual and not m.isRegex}
