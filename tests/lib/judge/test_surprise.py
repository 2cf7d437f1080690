# SPDX-License-Identifier: Apache-2.0
"""An effect unlike what other PoPs showed is doubted, and harm is taken back all the same."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgetune.base.documents.effect import Expected
from edgetune.base.documents.look import Look
from edgetune.base.documents.plan import Groups
from edgetune.judge.effects import Estimate, random_effects
from edgetune.judge.ring import PopRecord, decide_ring
from edgetune.judge.surprise import is_far
from tests.support.soaked_fleet import Fleet, kinds, texts, times

METRIC = "listen_drops"


def of(pops: int, ratio: float, next_pop: list[float | None]) -> Expected:
    likely = {f"p{number}": ratio for number in range(pops)}
    return Expected(METRIC, "", ratio, [0.9 * ratio, 1.1 * ratio], next_pop, likely)


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path, hosts=12).intends("improve", METRIC)


def soaked(fleet: Fleet, own: Expected | None, ratio: float, odd: float = 1.0) -> Look:
    fleet.plan = replace(fleet.plan, expected=own)
    changes = [times(METRIC, ratio, fleet.test), times(METRIC, odd, fleet.test[2:3])]
    return fleet.soaks([], changes)[-1]


def test_what_is_far_from_other_pops_is_held_and_the_host_named(fleet: Fleet) -> None:
    look = soaked(fleet, of(5, 0.3, [0.25, 0.36]), 0.6, odd=1.3)
    assert (look.decision, look.verdict, kinds(look)) == ("hold", "inconclusive", ["surprise"])
    told = texts(look, "surprise")
    assert told.startswith(
        f"the effect is far from what 5 PoPs showed: {METRIC} −70 % (−75 % to −64 %) was expected, "
    )
    assert f"was measured, most so on {fleet.test[2]}: −2" in told and told in look.reason
    # One that is better than it can be is as odd; who is the least so then is another.
    look = soaked(fleet, of(5, 0.9, [0.8, 1.0]), 0.4, odd=1.3)
    assert "surprise" in kinds(look) and fleet.test[2] not in texts(look, "surprise")


@pytest.mark.parametrize(
    "own",
    [
        None,
        of(4, 0.3, [0.25, 0.36]),
        of(5, 0.3, [0.1, 0.9]),
        of(5, 0.3, [None, 0.36]),
        of(5, 0.62, [0.61, 0.63]),
    ],
)
def test_what_few_pops_showed_or_what_is_near_it_surprises_nobody(
    fleet: Fleet, own: Expected | None
) -> None:
    look = soaked(fleet, own, 0.6)
    assert (look.decision, kinds(look)) == ("promote", [])


def test_it_is_the_look_that_decides_which_is_surprised(fleet: Fleet) -> None:
    soaked(fleet, of(5, 0.3, [0.25, 0.36]), 0.6)
    assert not any("surprise" in kinds(look) for look in fleet.soaks([], [])[:-1])


def test_harm_is_taken_back_whatever_was_expected(fleet: Fleet) -> None:
    assert soaked(fleet, of(5, 0.3, [0.25, 0.36]), 3.0).decision == "roll_back"


def test_where_hosts_differ_the_hardware_is_named(fleet: Fleet) -> None:
    test, control = fleet.test, fleet.control
    first, second = Groups(test[:3], control[:3]), Groups(test[3:], control[3:])
    fleet.plan = replace(fleet.plan, strata={"new, 100G": first, "old, 10G": second})
    look = soaked(fleet, of(5, 0.3, [0.25, 0.36]), 0.6, odd=1.3)
    assert f"most so on {fleet.test[2]} (new): −1" in texts(look, "surprise")


def test_a_ring_holds_the_pop_that_surprises_and_no_other(fleet: Fleet) -> None:
    records: dict[str, PopRecord] = {}
    for pop, own in {"ams1": 0.9, "fra1": 0.5, "lax1": 0.5, "sin1": 0.5}.items():
        soaked(fleet, of(5, own, [0.9 * own, 1.1 * own]), 0.5)
        records[pop] = fleet.record
    found = decide_ring(records)
    assert (found.look.decision, [*found.held]) == ("promote", ["ams1"])
    assert "the effect is far from what 5 PoPs showed" in found.held["ams1"]


def test_a_pop_like_the_others_is_far_no_more_often_than_the_interval_says() -> None:
    dice, far, factor = np.random.default_rng(2), 0, 2.5
    for _ in range(600):
        true, errors = dice.normal(-0.2, 0.1, 9), dice.uniform(0.05, 0.2, 9)
        *others, own = [Estimate(*each) for each in zip(dice.normal(true, errors), errors)]
        made = random_effects(others)
        half = made.next_half or 0.0
        next_pop: list[float | None] = [math.exp(made.mean - half), math.exp(made.mean + half)]
        expected = of(8, math.exp(made.mean), next_pop)
        far += is_far(expected, own)
        assert is_far(expected, Estimate(made.mean + factor * half, 0.01)) is True
    assert far <= 0.05 * 600
