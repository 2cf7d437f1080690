# SPDX-License-Identifier: Apache-2.0
"""Reasons to doubt a comparison: each with a case that is one, and one just below."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.base.documents.baseline import Facts
from edgetune.base.documents.look import Doubt
from edgetune.base.documents.plan import Groups
from edgetune.base.documents.reading import decoded
from edgetune.base.durations import duration
from edgetune.judge.permutation import make_draws
from edgetune.judge.soundness import doubts, gaps
from tests.support.cases import fits
from tests.support.examples import examples

TEST = [f"e{i:03d}" for i in range(1, 7)]
CONTROL = [f"e{i:03d}" for i in range(7, 13)]
HOSTS = [*TEST, *CONTROL]
STRATA = {"lab": Groups(TEST, CONTROL)}
DRAWS = make_draws(STRATA, seed=1)
END = 3600.0


def _facts(**changes: dict[str, Any]) -> Facts:
    """Facts of a window in which all is well, but for ``changes`` by fact and host."""
    usual: dict[str, Any] = {
        "samples": dict.fromkeys(HOSTS, 31),
        "newest": dict.fromkeys(HOSTS, END),
        "flaws": {},
        "packets": dict.fromkeys(HOSTS, 1000.0),
        "idle": dict.fromkeys(HOSTS, 0.0),
        "load": {"median": 12000.0, "peak": 12000.0},
    }
    return decoded(
        "facts", Facts, {fact: {**row, **changes.get(fact, {})} for fact, row in usual.items()}
    )


def _doubts(soak: Any = None, baseline: Any = None, **more: Any) -> list[Doubt]:
    given = {"end": END, "interval": 10.0, "draws": DRAWS, **more}
    return doubts(STRATA, baseline or _facts(), soak or _facts(), **given)


@pytest.mark.parametrize("count, missing", [(1, True), (2, False)])
def test_a_single_sample_tells_nothing(count: int, missing: bool) -> None:
    found = _doubts(_facts(samples=dict.fromkeys(HOSTS, count)))
    text = "no host has more than 1 of the 2 samples that the soak needs"
    assert [(doubt.kind, doubt.text) for doubt in found] == [("missing", text)] * missing


@pytest.mark.parametrize("interval, limit", [(10.0, 30.0), (1.0, 10.0)])
def test_a_soak_that_nobody_sampled_is_stale(interval: float, limit: float) -> None:
    at_limit = _facts(newest={**dict.fromkeys(HOSTS, 0.0), "e001": END - limit})
    assert _doubts(at_limit, interval=interval) == []
    beyond = _facts(newest=dict.fromkeys(HOSTS, END - limit - 1))
    (doubt,) = _doubts(beyond, interval=interval)
    assert (doubt.kind, doubt.text) == ("stale", f"the newest sample is {duration(limit + 1)} old")


OUTAGE = dict.fromkeys(HOSTS, 0.2)
LEVELS = {host: 100.0 * (1 + index) for index, host in enumerate(HOSTS)}
SURGE = {host: 5 * level for host, level in LEVELS.items()}
UNKNOWN = {"packets": dict.fromkeys(HOSTS), "load": {"median": None, "peak": None}}
REBOOTED = {"flaws": {"e007": "rebooted", "e008": "rebooted"}}
SKIPPED = {"samples": {"e099": 0}, **{"flaws": {"e099": "rebooted"}}, "idle": {"e099": 1.0}}
NOTHING = {"samples": dict.fromkeys(HOSTS, 0), "newest": dict.fromkeys(HOSTS)}


@pytest.mark.parametrize(
    ("soak", "baseline", "found"),
    [
        ({}, {}, []),
        (SKIPPED, SKIPPED, []),
        (NOTHING, {}, ["stale", "missing"]),
        (REBOOTED, {}, ["reboot"]),
        ({}, REBOOTED, []),
        ({"idle": {"e001": 0.3}}, {}, []),
        ({"idle": {"e001": 0.31}}, {}, ["spill_over"]),
        ({"idle": OUTAGE}, {}, []),
        ({"idle": {**OUTAGE, **dict.fromkeys(TEST, 0.4)}}, {}, []),
        ({"idle": {**OUTAGE, **dict.fromkeys(TEST, 0.41)}}, {}, ["spill_over"]),
        ({"packets": dict.fromkeys(TEST, 810.0)}, {}, []),
        ({"packets": dict.fromkeys(TEST, 790.0)}, {}, ["imbalance"]),
        ({"packets": dict.fromkeys(TEST, 0.0)}, {}, ["imbalance"]),
        ({"packets": {**dict.fromkeys(TEST, 300.0), "e012": None}}, {}, ["imbalance"]),
        ({"packets": {"e001": 1e5}}, {}, []),
        ({"packets": SURGE}, {"packets": LEVELS}, []),
        (UNKNOWN, UNKNOWN, []),
        ({"load": {"median": 1e9}}, UNKNOWN, []),
        # The peak of a baseline that lacks a host is none of all.
        ({"load": {"median": 1e9}}, {"packets": {"e001": None}}, []),
        ({"load": {"median": 1e9}, "packets": {"e001": None}}, {}, ["no_peak"]),
    ],
)
def test_a_reason_to_doubt_begins_where_it_is_said_to(
    soak: dict[str, Any], baseline: dict[str, Any], found: list[str]
) -> None:
    doubted = _doubts(_facts(**soak), _facts(**baseline))
    assert [doubt.kind for doubt in doubted] == found


FLAW = "listen_drops fell from 90 to 3: it was reset"
SHARED = "the others carried theirs, 11 % more each at most"
FEWER = {"packets": dict.fromkeys(TEST, 650.0)}
OF = "relative to their own baseline (p = 0.002)"


@pytest.mark.parametrize(
    ("soak", "baseline", "kind", "text"),
    [
        ({"samples": {"e005": 2}}, {}, "missing", "no data from e005 in the soak: 2 of 31 samples"),
        (
            {},
            {"samples": {"e005": 24}},
            "missing",
            "...in the baseline: 24 of 31 samples",
        ),
        ({"samples": {"e005": 25}}, {}, "", ""),
        (
            {"samples": dict(zip(TEST[:5], range(5)))},
            {},
            "missing",
            "no data from e001, e002, e003, e004 and 1 more in the soak: 0 to 4 of 31 samples",
        ),
        ({"newest": dict.fromkeys(HOSTS, END - 900)}, {}, "stale", "the newest sample is 15m old"),
        ({"flaws": {"e003": FLAW}}, {}, "reset", f"e003 in the soak: {FLAW}"),
        (
            {},
            {"flaws": {"e003": FLAW, "e004": FLAW}},
            "reset",
            f"e003 in the baseline: {FLAW}; so it is on e004",
        ),
        (
            {"idle": dict.fromkeys(TEST[:3], 0.2)},
            {},
            "spill_over",
            f"3 test hosts carried no traffic for 20 % of the soak (e001, e002, e003): {SHARED}",
        ),
        (
            {"idle": {"e007": 0.6}},
            {},
            "spill_over",
            f"1 control host carried no traffic for 60 % of the soak (e007): {SHARED}",
        ),
        (
            {"idle": dict.fromkeys(TEST[:3], 0.2), "packets": dict.fromkeys(CONTROL)},
            {},
            "spill_over",
            "3 test hosts carried no traffic for 20 % of the soak (e001, e002, e003)",
        ),
        (FEWER, {}, "imbalance", f"test hosts carry 35 % fewer packets than control {OF}"),
        ({}, FEWER, "imbalance", "...54 % more packets..."),
        (
            {"load": {"median": 30001.0}},
            {},
            "no_peak",
            "half of the sampled soak carried more than 2.5 times the baseline's peak...no peak",
        ),
        ({"load": {"median": 30000.0, "peak": 1e9}}, {}, "", ""),
    ],
)
def test_a_reason_to_doubt_is_told_with_its_hosts(
    soak: Any, baseline: Any, kind: str, text: str
) -> None:
    found = _doubts(_facts(**soak), _facts(**baseline))
    biased = kind in ("stale", "spill_over", "imbalance")
    assert [(doubt.kind, doubt.biased) for doubt in found] == [(kind, biased)] * bool(kind)
    assert all(fits(doubt.text, text) for doubt in found), found


def test_few_hosts_are_out_of_balance_as_soon_as_they_can_be() -> None:
    few = {"lab": Groups(TEST[:3], CONTROL[:3])}
    draws = make_draws(few, seed=1)
    fewer = _facts(packets=dict.fromkeys(TEST, 500.0))
    found = doubts(few, _facts(), fewer, end=END, interval=10.0, draws=draws)
    assert [doubt.kind for doubt in found] == ["imbalance"]
    assert "(p = 0.100)" in found[0].text
    fewer.packets["e001"] = 1000.0
    assert doubts(few, _facts(), fewer, end=END, interval=10.0, draws=draws) == []


def test_gaps_are_those_of_one_window() -> None:
    facts = _facts(samples={"e002": 0}, flaws={"e003": "x fell", "e004": "rebooted"})
    found = gaps(HOSTS, facts, "baseline")
    assert [doubt.kind for doubt in found] == ["missing", "reset"]
    assert all("in the baseline" in doubt.text for doubt in found)


levels = st.lists(st.floats(0.1, 1e6), min_size=12, max_size=12)


@examples(50)
@given(levels, levels)
def test_groups_that_change_names_are_doubted_alike(before: Any, after: Any) -> None:
    """Test and control are told apart in the text, not in whether there is a doubt."""
    was, now = dict(zip(HOSTS, before)), dict(zip(HOSTS, after))
    swapped = {"lab": Groups(CONTROL, TEST)}
    draws = make_draws(swapped, seed=1)
    facts = _facts(packets=was), _facts(packets=now)
    one = doubts(STRATA, *facts, end=END, interval=10.0, draws=DRAWS)
    other = doubts(swapped, *facts, end=END, interval=10.0, draws=draws)
    assert [doubt.kind for doubt in one] == [doubt.kind for doubt in other]
