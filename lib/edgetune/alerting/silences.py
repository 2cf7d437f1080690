# SPDX-License-Identifier: Apache-2.0
"""Which silences are wanted, and what of that Alertmanager has."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from urllib.parse import quote

from edgetune import PACK
from edgetune.alerting.conversation import Conversation
from edgetune.alertmanager import Alertmanager
from edgetune.documents.alertmanager import Matcher, Silence
from edgetune.documents.reading import encoded, taken
from edgetune.errors import EdgetuneError
from edgetune.sanitize import shortened

PATIENCE = 3.0
"""Seconds for all hosts, all requests and all members of the cluster."""
_SILENCES = "/silences"

# Every alert lacks this label, so a matcher that excludes a value of it excludes none. A list of
# silences can be asked for by one whole matcher alone, and so it is that of a rollout.
_MARK = "edgetune_rollout"

Matchers = Mapping[str, str]


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
    end = time.monotonic() + PATIENCE
    for left in range(len(settings.url), 0, -1):
        share = (end - time.monotonic()) / left
        try:
            url = settings.url[-left]
            with Conversation(settings, url, time.monotonic() + share) as member:
                _keep(member, settings.bound, rollout, wanted)
            return ""
        except EdgetuneError as error:
            problems.append(str(error))
    return shortened("; ".join(problems))


def _keep(member: Conversation, bound: float, rollout: str, wanted: Sequence[Wanted]) -> None:
    silences, now = _list(member, rollout)
    for each in wanted:
        own = [silence for silence in silences if _labels(silence) == each.matchers]
        if each.comment:
            last = max(own, key=lambda silence: silence.endsAt, default=None)
            _post(member, _document(each, rollout, last, now, bound))
            continue
        for silence in own:
            member.ask("DELETE", f"/silence/{quote(silence.id, safe='')}")


def _list(member: Conversation, rollout: str) -> tuple[list[Silence], float]:
    """Those of a rollout that are not over, and Alertmanager's clock."""
    matcher = quote(f'{_MARK}!="{rollout}"')
    answer, now = member.ask("GET", f"{_SILENCES}?filter={matcher}")
    try:
        if not isinstance(answer, list):
            raise TypeError
        found = [taken(Silence, own) for own in answer]
    except (TypeError, LookupError, AttributeError):
        raise member.failed("its list of silences is none") from None
    return [own for own in found if own.createdBy == PACK and own.status.state != "expired"], now


def _labels(silence: Silence) -> Matchers:
    """What alerts have that it silences."""
    return {own.name: own.value for own in silence.matchers if own.isEqual and not own.isRegex}


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
