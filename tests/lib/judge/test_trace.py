# SPDX-License-Identifier: Apache-2.0
"""Late harm is traced to the change that did it, and what is ambient to none."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from edgetune.intent.metrics.catalogue import METRICS
from edgetune.judge.trace import Change, Suspect, evidence, suspects

Array = Any
POPS, DAYS = 24, 21
DAY = np.arange(DAYS)


def change(name: str, begins: int, order: Array, reached: int = 14) -> Change:
    """Two PoPs more of an order each day."""
    since = np.full(POPS, np.nan)
    since[order[:reached]] = begins + np.arange(reached) // 2
    return Change(name, since, np.full(POPS, np.inf))


@pytest.fixture
def fleet() -> tuple[Array, list[Change]]:
    dice = np.random.default_rng(1)
    changes = [
        change(name, begins, dice.permutation(POPS))
        for name, begins in [("early", 2), ("guilty", 5), ("late", 8)]
    ]
    harm = dice.normal(0, 0.03, (POPS, DAYS)) + dice.normal(0, 0.5, (POPS, 1))
    return harm + dice.normal(0, 0.1, DAYS), changes


def later(own: Change, days: int) -> Array:
    """Where a change stands for so many days."""
    return own.since[:, None] + days <= DAY


def test_late_harm_is_traced_to_its_change_and_its_day(fleet: tuple[Array, list[Change]]) -> None:
    harm, changes = fleet
    # What another one cured at once hides nothing.
    harm += math.log(1.1) * later(changes[1], 3) - 0.4 * later(changes[1], 0)
    first, *others = suspects(harm - 0.3 * later(changes[2], 0), changes)
    assert (first.tuning, first.days, first.is_accused) == ("guilty", 3, True)
    assert first.interval[0] < 1.1 < first.interval[1] and first.ratio == pytest.approx(1.1, 0.02)
    assert (first.pops, first.others) == (14, 10)
    assert not any(own.is_accused for own in others)


def test_harm_from_the_first_day_on_is_traced_as_well(fleet: tuple[Array, list[Change]]) -> None:
    harm, changes = fleet
    first = suspects(harm + 0.1 * later(changes[0], 0), changes)[0]
    assert (first.tuning, first.days, first.is_accused) == ("early", 0, True)


def test_days_that_are_absent_change_no_answer(fleet: tuple[Array, list[Change]]) -> None:
    harm, changes = fleet
    harm += 0.1 * later(changes[1], 3)
    harm[np.random.default_rng(2).random(harm.shape) < 0.2] = np.nan
    harm[5] = np.nan
    first = suspects(harm, changes)[0]
    assert (first.tuning, first.days, first.is_accused) == ("guilty", 3, True)


@pytest.mark.parametrize("worse", [0.0, 0.3])
def test_what_is_everywhere_accuses_nobody(fleet: tuple[Array, list[Change]], worse: float) -> None:
    harm, changes = fleet
    found = suspects(harm + worse * (DAY >= 12), changes)
    assert len(found) == 3 and not any(own.is_accused for own in found)


def test_a_benefit_accuses_nobody(fleet: tuple[Array, list[Change]]) -> None:
    harm, changes = fleet
    assert not any(own.is_accused for own in suspects(harm - 0.2 * later(changes[1], 3), changes))


def test_of_two_that_nothing_tells_apart_none_is_accused(fleet: tuple[Array, list[Change]]) -> None:
    harm, changes = fleet
    guilty = changes[1]
    twin = Change("twin", guilty.since + 1, guilty.until)
    found = suspects(harm + 0.2 * later(guilty, 3), [*changes, twin])
    # Sooner after it is likelier.
    assert [own.tuning for own in found[:2]] == ["twin", "guilty"]
    assert found[0].votes > 1.1 * found[1].votes
    assert found[0].p < 0.02 and not any(own.is_accused for own in found)


def test_a_change_that_came_everywhere_at_once_cannot_be_told_from_the_day(
    fleet: tuple[Array, list[Change]],
) -> None:
    harm, _ = fleet
    everywhere = Change("all", np.full(POPS, 5.0), np.full(POPS, np.inf))
    assert suspects(harm + 0.3 * later(everywhere, 2), [everywhere]) == []
    assert suspects(harm, []) == []


def test_where_it_was_taken_back_the_harm_is_to_end(fleet: tuple[Array, list[Change]]) -> None:
    harm, changes = fleet
    old = changes[1]
    changes[1] = Change("guilty", old.since, old.since + 6)
    stood = later(old, 2) & ~later(old, 6)
    first = suspects(harm + 0.15 * stood, changes)[0]
    assert (first.tuning, first.is_accused) == ("guilty", True)
    # What stays as bad where it is gone was not of it.
    assert suspects(harm + 0.15 * later(old, 6), changes)[0].tuning != "guilty"


def test_the_evidence_is_one_sentence() -> None:
    own = Suspect("accept_queue", 3, 1.1, (1.05, 1.15), 14, 10, 0.001, 0.97)
    assert evidence("listen_drops", METRICS["listen_drops"], own) == (
        "listen_drops +10 % (+5 % to +15 %) with accept_queue on 14 PoPs from 3 days after it on, "
        "beside 10 PoPs without it (p = 0.001, 97% of the votes)"
    )
    # Fewer packets are worse.
    assert evidence("packets", METRICS["packets"], own).startswith(
        "packets −9.1 % (−13 % to −4.8 %)"
    )


def test_pops_without_samples_make_chance_no_smaller(fleet: tuple[Array, list[Change]]) -> None:
    harm, changes = fleet
    harm += 0.02 * later(changes[1], 3)
    absent = np.full((3 * POPS, DAYS), np.nan)
    # Most of its days are absent, so it tells nothing.
    absent[0, -9:] = 5.0
    never, stands = np.full(len(absent), np.nan), np.full(len(absent), np.inf)
    wider = [
        Change(own.tuning, np.append(own.since, never), np.append(own.until, stands))
        for own in changes
    ]
    assert suspects(np.concatenate([harm, absent]), wider) == suspects(harm, changes)


def test_absent_days_make_chance_no_smaller() -> None:
    since = np.full(POPS, np.nan)
    since[16:20] = [11, 12, 13, 14]
    own, dice, few = Change("one", since, np.full(POPS, np.inf)), np.random.default_rng(0), 0
    for _ in range(60):
        harm = dice.normal(0, 0.1, (POPS, 20))
        harm[:16, 10:] = np.nan
        few += suspects(harm, [own])[0].p <= 0.05
    assert few <= 8
