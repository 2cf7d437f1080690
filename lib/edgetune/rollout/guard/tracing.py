# SPDX-License-Identifier: Apache-2.0
"""A tuning that made PoPs worse days after it was promoted: looked for once a day, over all PoPs.

Each look of the guard reads the samples of a few days of PoPs, so it keeps no other check waiting.
"""

from __future__ import annotations

from collections.abc import Iterator

from edgetune.base import clock
from edgetune.base.documents.words import State
from edgetune.base.durations import DAY
from edgetune.base.sanitize import command, one_line
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.harm import DailyRates, days_until_today, traced
from edgetune.rollout.record.heads import living_heads
from edgetune.rollout.record.promotions import Promotion, promotions_of, retirable

_SECONDS = 2.0
"""Of a look, in which samples are read."""


class Tracing:
    """What was read of the days so far, and by tuning what speaks against it today."""

    def __init__(self) -> None:
        self._day = 0
        self._changes: list[Promotion] | None = None
        self._rates = DailyRates()
        self._accused: dict[str, str] | None = None

    def look(self, context: Context) -> Iterator[dict[str, object]]:
        """The payload for each tuning that is accused, with the PoP that has it longest of those
        where it stands. Once it is taken back there the next one of its rings has its turn; while
        that goes on, none has."""
        self._begin(int(clock.wall() // DAY))
        if self._accused is None:
            self._accused = self._judge(context)
        if not self._accused:
            return
        heads = living_heads(context)
        going = {head.tuning for head in heads if head.state == State.ROLLING_BACK}
        standing = retirable(context, heads)
        for tuning, evidence in self._accused.items():
            pops = [own.pop for own in standing if own.tuning == tuning]
            if pops and tuning not in going:
                yield _payload(context, tuning, pops, evidence)

    def _begin(self, day: int) -> None:
        if day != self._day:
            self._day, self._changes, self._accused = day, None, None
            self._rates.unknown.clear()

    def _judge(self, context: Context) -> dict[str, str] | None:
        """None until all is read that tells."""
        from edgetune.judge.trace import evidence

        days = days_until_today(context)
        if self._changes is None:
            self._changes = promotions_of(context, living_heads(context))
        if all(own.since < days.start * DAY for own in self._changes):
            return {}
        if not self._rates.read(context, days, _SECONDS):
            return None
        found = traced(context, self._rates, self._changes, days)
        return {
            own.tuning: evidence(name, context.catalogue[name], own)
            for name, own in reversed(found)
            if own.is_accused
        }


def _payload(context: Context, tuning: str, pops: list[str], evidence: str) -> dict[str, object]:
    retires = command("retire_tuning", pop=pops[0], tuning=tuning)
    return {
        "id": f"harm-{tuning}-{pops[0]}",
        "tuning": tuning,
        "pop": pops[0],
        "pops": pops,
        "channel": context.config.chat_channel,
        "reason": one_line(f"{evidence}; {retires} takes it back, first there"),
        "evidence": one_line(evidence),
        "command": retires,
    }
