# SPDX-License-Identifier: Apache-2.0
"""A measurement of capacity that is under way, opened to go on with it."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import TypedDict

from edgetune.base import clock
from edgetune.base.documents.capacity import Capacity, PairMeasured, PlannedPair
from edgetune.base.documents.head import Measuring
from edgetune.base.errors import RefusedError
from edgetune.judge.capacity import conclusion, ratio_over
from edgetune.rollout.context import Context
from edgetune.rollout.ownership.lease import Rollout, open_rollout
from edgetune.rollout.record.capacity import load_capacity, save_capacity

LENT_FOR = 180.0
"""Seconds after the last step until a measurement has no owner any more."""
LOOK = 10.0
"""Seconds between two looks at hosts that are lent more."""


class MeasuredResult(TypedDict):
    """The task that follows ("" for none) and in how many seconds."""

    rollout: str
    next: str
    retry_after: int
    message: str


class Measured:
    """One measurement and its rollout, to be gone on with by its owner."""

    def __init__(self, opened: Rollout, own: Capacity) -> None:
        self.opened, self.own = opened, own

    @property
    def pair(self) -> tuple[PlannedPair, PairMeasured] | None:
        """The pair that is measured or is the next, None where none is left."""
        number = self.own.at
        return None if number is None else (self.own.plan.pairs[number], self.own.pairs[number])

    def save(self) -> None:
        """Write it down, as the owner only, and put its end off."""
        measuring, until = self.opened.head.measuring, clock.wall() + LENT_FOR
        if measuring and measuring.until < until - LENT_FOR / 6:
            measuring.until = until
            self.opened.save()
        else:
            self.opened.renew()
        save_capacity(self.opened.context, self.own)

    def stop(self, why: str) -> MeasuredResult:
        """Have all weights returned, and nothing more measured."""
        self.own.stopped = why
        self.save()
        return self.told("return_weights", 0, f"stopped: {why}")

    def by_lot(self, hosts: Sequence[str], rung: int) -> list[str]:
        """Hosts in the order in which they get their weights, the same whenever it is asked."""
        drawn = list(hosts)
        random.Random(f"{self.own.plan.seed} {self.own.at} {rung}").shuffle(drawn)
        return drawn

    def told(self, following: str, retry_after: float, message: str) -> MeasuredResult:
        """The result of a step."""
        return {
            "rollout": self.own.plan.rollout,
            "next": following,
            "retry_after": math.ceil(retry_after),
            "message": message,
        }


def open_measured(context: Context, rollout: str, epoch: int) -> Measured:
    """The measurement that is under way during a rollout.

    RefusedError where none is; errors as of ``open_rollout``.
    """
    opened = open_rollout(context, rollout, epoch)
    own = load_capacity(context, rollout) if opened.head.measuring else None
    if own is None or own.ended:
        raise RefusedError(f"no capacity is measured during rollout {rollout}")
    return Measured(opened, own)


def conclude(opened: Rollout, own: Capacity) -> None:
    """Write down what was measured, once no weight is lent any more: nothing more will be."""
    own.ended, own.ratio = clock.wall(), ratio_over(own)
    head = opened.head
    head.note(own.by, f"capacity: {conclusion(own)}")
    # Before the head: it says that there is nothing more to go on with.
    opened.renew()
    save_capacity(opened.context, own)
    head.measuring, head.capacity = None, own.ratio
    opened.save()


def begin(opened: Rollout, own: Capacity, owner: str) -> None:
    """Write down that a measurement begins; the caller has taken a claim of its own for it."""
    save_capacity(opened.context, own)
    opened.head.measuring = Measuring(clock.wall() + LENT_FOR, owner=owner)
    # What the head says is of the document, which is another one from here on.
    opened.head.capacity = None
    opened.head.note(own.by, "measuring the capacity of its hosts")
    opened.save()
