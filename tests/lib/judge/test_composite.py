# SPDX-License-Identifier: Apache-2.0
"""The performance health check: several gauges, judged as one metric."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgetune.config import PACK_METRICS
from edgetune.errors import InputError
from edgetune.files import load_yaml
from edgetune.metrics.catalogue import METRICS, Catalogue
from edgetune.metrics.series import read_window
from edgetune.report.text import verdict_text
from tests.support.builders import table_of, write_yaml
from tests.support.soaked_fleet import Fleet, kinds, lacks, texts, times

NAME = "performance_health"
PARTS = {"health_p50_ms": 0.5, "health_p95_ms": 0.3, "health_p99_ms": 0.2}
SHOWN = ["health_p50", "health_p95", "health_p99"]


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def judged_by(fleet: Fleet, goal: str, *guards: str) -> Fleet:
    fleet.intends(goal, NAME, *guards)
    names = (NAME, *SHOWN, "packets", *guards)
    fleet.plan = replace(fleet.plan, definitions={name: METRICS[name] for name in names})
    return fleet


def test_it_is_the_geometric_mean_of_its_parts_by_their_weights() -> None:
    assert METRICS[NAME].gauges == PARTS and METRICS[NAME].parts == SHOWN
    readings = [(2.0, 8.0, 32.0), (1.0, 1.0, 1.0), (4.0, 0.0, 9.0), (4.0, None, 9.0)]
    rows = [
        {
            **{"host": "a", "boot_id": "b", "time": 10.0 * at, "uptime": 10.0 * at},
            "counters": {},
            "gauges": dict(zip(PARTS, values)),
        }
        for at, values in enumerate(readings, start=1)
    ]
    window = read_window(table_of(rows), ["a"], 0, 40, 10, {NAME: METRICS[NAME]})
    mean = math.exp(0.5 * math.log(2) + 0.3 * math.log(8) + 0.2 * math.log(32))
    np.testing.assert_allclose(window.metrics[NAME].events[0], [mean, 1, np.nan, np.nan])
    assert window.coverage.known[NAME] == pytest.approx([15])
    assert window.coverage.unread["health_p95_ms"] == pytest.approx([30 / 4])


def test_each_part_counts_by_its_share_whatever_it_takes(fleet: Fleet) -> None:
    """A p99 of seconds has no more weight than a p50 of milliseconds."""
    slow = times("health_p99_ms", 1000, fleet.hosts)
    (*_, last) = judged_by(fleet, "improve").soaks(
        [slow], [slow, times("health_p50_ms", 0.64, fleet.test)]
    )
    assert (last.verdict, last.decision) == ("improved", "promote")
    composite, _, *parts = last.metrics
    assert composite.ratio == pytest.approx(0.64**0.5, rel=0.03)
    assert composite.interval[0] and composite.interval[0] < 0.8 < (composite.interval[1] or 0)
    assert [row.metric for row in parts] == SHOWN and {row.role for row in parts} == {"part"}
    assert [row.ratio for row in parts] == pytest.approx([0.64, 1, 1], rel=0.05)
    assert parts[0].p_better < 0.01 < min(parts[1].p_better, parts[1].p_worse)
    assert "\n  health_p50 (part) test " in verdict_text(last, fleet.plan)
    assert [*last.hosts] == [NAME, "packets"]


def test_a_part_alone_is_no_harm(fleet: Fleet) -> None:
    """Half as slow again in a fifth of the mean is 8 % in all: within the margin of 20 %."""
    worse = times("health_p99_ms", 1.5, fleet.test)
    (*_, last) = judged_by(fleet, "no_harm").soaks([], [worse])
    assert (last.verdict, last.decision) == ("no_difference", "promote")
    assert last.metrics[0].ratio == pytest.approx(1.5**0.2, rel=0.03)
    worse = times("health_p99_ms", 6, fleet.test)
    assert judged_by(fleet, "no_harm").soaks([], [worse])[-1].decision == "roll_back"
    # One that is a guard as well is judged.
    worse = times("health_p99_ms", 1.5, fleet.test)
    looks = judged_by(fleet, "no_harm", "health_p99").soaks([], [worse])
    assert looks[-1].decision == "roll_back"
    assert [row.role for row in looks[-1].metrics] == ["intent", "guard", "guard", "part", "part"]


def test_without_one_of_its_parts_it_is_not_measured(fleet: Fleet) -> None:
    (*_, last) = judged_by(fleet, "no_harm").soaks([], [lacks(["health_p95_ms"], fleet.hosts)])
    assert last.decision == "hold" and "unmeasured" in kinds(last)
    told = texts(last, "unmeasured")
    assert told.startswith(f"{NAME}: stopped being measured in the soak on ")
    assert told.endswith("(health_p95_ms: not read)")


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        ({"health_p50": 0.5, "health_p99": 0.4}, "composite: weights add up to 0.9, not to 1"),
        ({"health_p50": 1.5}, "composite.health_p50: 1.5 is above 1"),
        ({"cpu": 1}, "composite.cpu: is no metric of one gauge"),
        ({"health_p51": 1}, "composite.health_p51: is no metric of one gauge"),
        ({NAME: 1}, "composite: is made of itself"),
        ({}, "composite: weights add up to 0, not to 1"),
    ],
)
def test_parts_that_make_no_mean_are_refused(
    tmp_path: Path, weights: dict[str, float], says: str
) -> None:
    document = {**load_yaml(PACK_METRICS / f"{NAME}.yaml"), "composite": weights}
    path = write_yaml(tmp_path / f"{NAME}.yaml", document)
    with pytest.raises(InputError) as caught:
        Catalogue([tmp_path, PACK_METRICS])[NAME]
    assert str(caught.value) == f"{path}: {says}"
    write_yaml(
        path, {**document, "composite": dict(zip(SHOWN, PARTS.values())), "better": "higher"}
    )
    with pytest.raises(InputError, match="composite.health_p50: is better when lower"):
        Catalogue([tmp_path, PACK_METRICS])[NAME]
