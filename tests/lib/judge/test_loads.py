# SPDX-License-Identifier: Apache-2.0
"""Slots of hosts by their load: which are counted, which are beyond a limit, and what is kept."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgetune.base.documents.baseline import Loads
from edgetune.base.documents.metric import READINGS, REQUESTS, SECONDS, Histogram, Metric
from edgetune.base.documents.plan import Groups
from edgetune.base.errors import InputError
from edgetune.intent.metrics.catalogue import METRICS
from edgetune.judge.limits import FAILED
from edgetune.judge.loads import BINS, LEAST_EVENTS, LOGS, MOST_HOSTS, count_loads, slots_of
from edgetune.judge.measured_share import Coverage
from edgetune.judge.series import Series, Window
from tests.support.stored import stored

HOSTS = ["a", "b", "c", "d"]
STRATA = {"any": Groups(["a", "b"], ["c", "d"])}
USUAL = dict.fromkeys(HOSTS, 1000.0)
GAUGE = Metric("ms", "took {much} time", gauges={"ms": 1.0}, limit=250)
COUNTER = Metric("drops", "dropped {much}", counters=["n"], per_if_known="rx", scale=1e6, limit=100)


def window(
    packets: Any, events: Any, exposure: Any = 1.0, per: str = READINGS, hosts: Any = HOSTS
) -> Window:
    """One metric ``own``, in minutes; each array is (hosts, slots) or one row for all hosts."""
    shape = (len(hosts), np.shape(packets)[-1])
    known = Coverage(np.zeros(shape[0]), {}, {})
    rows = [np.broadcast_to(np.array(own, dtype=float), shape) for own in (events, exposure)]
    return Window(
        hosts=tuple(hosts), start=0.0, end=60.0 * shape[1], slot=60.0,
        metrics={"own": Series(*rows)}, exposures={"own": per},
        packets=np.broadcast_to(np.array(packets, dtype=float), shape),
        samples=np.full(shape[0], shape[1]), newest=np.zeros(shape[0]), flaws={},
        coverage=known, boots={},
    )  # fmt: skip


def counted(own: Window, metric: Metric = GAUGE, spans: int = 2, **more: Any) -> Loads:
    given: dict[str, Any] = {"strata": STRATA, "packets": USUAL, **more}
    (loads,) = count_loads(own, metrics={"own": metric}, spans=spans, **given).values()
    return stored(loads)


class Kept:
    """A baseline as far as loads go."""

    def __init__(self, loads: Loads) -> None:
        self.loads = {"own": loads}


def group(loads: Loads, hosts: Any, of_control: bool = False) -> Any:
    parts: Any = [Kept(loads)]
    return slots_of(parts, "own", hosts, of_control)


def places(counts: Any) -> dict[float, float]:
    """How many slots are at which load, to a twentieth."""
    return {round(math.exp(LOGS[at]), 1): counts[at] for at in np.flatnonzero(counts)}


def test_each_slot_is_counted_at_its_load_and_on_its_side_of_the_limit() -> None:
    loads = counted(window([500, 1000, 1000, 2000], [100, 250, 251, 900]))
    hosts, spans = group(loads, ["b", "a"])
    for own in hosts.known:
        assert places(own) == {0.5: 1, 1.0: 2, 2.0: 1}
    for own in hosts.beyond:
        # At the limit is not beyond it.
        assert places(own) == {1.0: 1, 2.0: 1}
    # Spans of time are of both hosts.
    assert [places(own) for own in spans.known] == [{0.5: 2, 1.0: 2}, {1.0: 2, 2.0: 2}]
    assert [places(own) for own in spans.beyond] == [{}, {1.0: 2, 2.0: 2}]


def test_a_load_is_told_to_the_twentieth_part() -> None:
    assert np.exp(LOGS[[0, -1]]) == pytest.approx([1 / 16, 16], rel=0.05)
    assert np.diff(np.exp(LOGS)) / np.exp(LOGS[:-1]) == pytest.approx(np.full(BINS - 1, 0.05))
    hosts, _ = group(counted(window([1, 10**9, 0, math.nan], 1)), ["a"])
    assert hosts.known.sum() == 0


def test_groups_are_kept_apart() -> None:
    loads = counted(window(1000 * np.ones((4, 6)), [[1]] * 2 + [[300]] * 2))
    for of_control, hosts in ((False, ["a", "b"]), (True, ["c", "d"])):
        for own in group(loads, hosts, of_control):
            assert own.known.sum() == 12 and own.beyond.sum() == 12 * of_control


def test_what_was_not_read_is_neither_within_nor_beyond() -> None:
    events = [math.nan, 100, 900, 900]
    hosts, spans = group(counted(window([1000] * 4, events)), ["a"])
    assert hosts.known.sum() == 3 and hosts.beyond.sum() == 2
    assert spans.known.sum() == 6
    for blank in (0.0, math.nan):
        hosts, _ = group(counted(window([1000] * 4, 900, blank)), ["a"])
        assert hosts.known.sum() == 0


def test_a_load_is_a_multiple_of_what_is_usual_in_the_stratum() -> None:
    strata = {"old": Groups(["a"], ["c"]), "new": Groups(["b"], ["d"])}
    packets = {"a": 100.0, "c": 120.0, "b": 1000.0, "d": None}
    loads = counted(window([220] * 3, 1), strata=strata, packets=packets)
    assert [places(own) for own in group(loads, ["a", "b"])[0].known] == [{2.0: 3}, {0.2: 3}]
    unknown = counted(window([220] * 3, 1), packets=dict.fromkeys(HOSTS))
    assert group(unknown, HOSTS)[0].known.sum() == 0


@pytest.mark.parametrize(
    ("events", "exposure", "beyond"), [(50, 1e6, 0), (150, 1e6, 1), (9, 1e5, 0), (11, 1e5, 1)]
)
def test_a_limit_is_in_the_unit_of_the_metric(events: float, exposure: float, beyond: int) -> None:
    hosts, _ = group(counted(window([1000], events, exposure, "rx"), COUNTER, 1), ["a"])
    assert (hosts.known.sum(), hosts.beyond.sum()) == (1, beyond)


def test_slots_in_which_the_limit_is_hardly_an_event_are_not_counted() -> None:
    least = LEAST_EVENTS / 100 * 1e6
    own = window([1000, 1000], 1000, [least, 0.99 * least], "rx")
    assert group(counted(own, COUNTER, 1), ["a"])[0].known.sum() == 1
    # Of readings, and of quantiles of enough requests, one is enough.
    for per, metric in (
        (READINGS, GAUGE),
        (REQUESTS, replace(GAUGE, gauges={}, histogram=Histogram("ms", 99))),
    ):
        small = replace(metric, limit=0.5)
        assert group(counted(window([1000], 1, 1, per), small, 1), ["a"])[0].beyond.sum() == 1


def test_where_higher_is_better_what_is_less_is_beyond_the_limit() -> None:
    hits = replace(GAUGE, better="higher", limit=90)
    hosts, _ = group(counted(window([1000] * 3, [80, 90, 95]), hits), ["a"])
    assert hosts.beyond.sum() == 1


def test_of_very_many_hosts_some_of_each_group_are_counted() -> None:
    names = [f"e{number}" for number in range(200)]
    strata = {"any": Groups(names[:100], names[100:])}
    own = window(np.full((200, 4), 1000.0), 1, hosts=names)
    loads = counted(own, strata=strata, packets=dict.fromkeys(names, 1000.0))
    assert len(loads.hosts) == 2 * MOST_HOSTS and len({*loads.hosts}) == 2 * MOST_HOSTS
    assert sum(host in names[:100] for host in loads.hosts) == MOST_HOSTS


def test_nothing_is_kept_without_a_limit() -> None:
    own = window([1000] * 4, 1)
    assert count_loads(own, STRATA, USUAL, {"own": replace(GAUGE, limit=None)}, 2) == {}


def test_documents_add_up_and_one_without_loads_adds_nothing() -> None:
    first, second = (counted(window([1000] * n, 300), spans=n) for n in (3, 5))
    none = Kept(first)
    none.loads = {}
    parts: Any = [Kept(first), none, Kept(second)]
    hosts, spans = slots_of(parts, "own", ["a", "x"], False)
    assert hosts.known.sum(axis=1).tolist() == [8, 0]
    assert spans.known.sum(axis=1).tolist() == [2] * 8


def test_fewer_slots_than_spans_are_told_as_those_that_there_are() -> None:
    _, spans = group(counted(window([1000] * 2, 300), spans=4), ["a"])
    assert sorted(spans.known.sum(axis=1)) == [0, 0, 2, 2]


def test_damaged_counts_are_refused() -> None:
    loads = counted(window([1000] * 4, 300))
    broken = replace(loads, beyond=replace(loads.beyond, counts=loads.beyond.counts[:-8]))
    with pytest.raises(InputError, match=r"loads\.beyond"):
        group(broken, ["a"])


def test_the_limit_of_failed_checks_is_the_hard_limit_of_a_host() -> None:
    assert METRICS["health_failed"].limit == FAILED


def test_seconds_are_an_exposure_like_any_other() -> None:
    retried = replace(COUNTER, per_if_known=None, scale=1.0, limit=2)
    hosts, _ = group(counted(window([1000] * 2, [100, 150], 60, SECONDS), retried), ["a"])
    assert (hosts.known.sum(), hosts.beyond.sum()) == (2, 1)
