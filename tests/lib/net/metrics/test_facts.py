# SPDX-License-Identifier: Apache-2.0
"""What a window tells beside its metrics, and several blocks as one."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.base.documents.baseline import Facts, Load
from edgetune.base.documents.reading import decoded, encoded
from edgetune.judge.facts import merge_facts, window_facts
from edgetune.judge.measured_share import Coverage
from edgetune.judge.series import REBOOTED, Window
from tests.support.examples import examples
from tests.support.stored import stored

NAN = math.nan


def _window(
    packets: Mapping[str, list[float]], flaws: Any = None, start: float = 0.0, boot: str = "b"
) -> Window:
    """A window with one sample in each slot of 10 s whose packets are known."""
    rows = np.array(list(packets.values()), dtype=float)
    known = ~np.isnan(rows)
    newest = [start + 10 * np.max(np.flatnonzero(row) + 1) if row.any() else NAN for row in known]
    return Window(
        hosts=tuple(packets),
        start=start,
        end=start + 10.0 * rows.shape[1],
        slot=10.0,
        metrics={},
        exposures={},
        packets=rows,
        samples=known.sum(axis=1),
        newest=np.array(newest),
        flaws=flaws or {},
        coverage=Coverage(10.0 * known.sum(axis=1), {}, {}),
        boots=dict.fromkeys(packets, (boot, boot)),
    )


def test_facts_of_a_window_are_plain_json() -> None:
    window = _window({"a": [1.0, 3.0], "b": [NAN, NAN]}, {"a": REBOOTED})
    facts = encoded(window_facts(window))
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert facts == {
        "samples": {"a": 2, "b": 0},
        "newest": {"a": 20.0, "b": None},
        "flaws": {"a": "rebooted"},
        "packets": {"a": 2.0, "b": None},
        "idle": {"a": 0.0, "b": 0.0},
        "idlest": {"a": 0.0, "b": 0.0},
        "boots": {"a": ["b", "b"], "b": ["b", "b"]},
        "measured": {
            "seconds": 20.0,
            "watched": {"a": 20.0, "b": 0.0},
            "known": {},
            "unread": {},
            "why": {},
        },
        "load": {"median": 2.0, "peak": 3.0},
    }


def test_facts_of_a_host_that_counts_what_none_can_are_read_back() -> None:
    """A damaged uptime or counter costs no look: it is the judge that finds it."""
    window = _window({"a": [1e20, 1e300]})
    huge = replace(window, coverage=Coverage(np.array([1e20]), {"cpu": np.array([1e20])}, {}))
    assert stored(window_facts(huge)) == window_facts(huge)


def test_idle_is_a_tenth_of_what_is_usual() -> None:
    window = _window({"a": [9.9, 10.0, 500.0, NAN], "b": [0.0, 0.0, 0.0, 0.0]})
    assert window_facts(window, {"a": 100.0, "b": None}).idle == {"a": 1 / 3, "b": 0.0}


def test_hosts_that_are_missing_count_in_the_load_with_their_mean() -> None:
    window = _window({"a": [10.0, NAN, 30.0, NAN], "b": [1.0, 2.0, 6.0, NAN], "c": [NAN] * 4})
    assert window_facts(window).load == Load(22.0, 36.0)
    assert window_facts(_window({"a": [NAN]})).load == Load(None, None)


def test_blocks_are_weighted_by_their_samples() -> None:
    first = window_facts(_window({"a": [100.0] * 3}), {"a": 100.0})
    second = window_facts(_window({"a": [0.0]}, start=30.0), {"a": 100.0})
    silent = window_facts(_window({"a": [NAN]}, start=40.0), {"a": 100.0})
    merged = merge_facts([first, second, silent])
    assert merged.samples == {"a": 4}
    assert merged.newest == {"a": 40.0}
    assert merged.packets == {"a": 75.0}
    assert merged.idle == {"a": 0.25}
    assert merged.load == Load(50.0, 100.0)


def test_the_first_flaw_stays_and_hides_no_counter_behind_a_reboot() -> None:
    flaws = [{"a": REBOOTED}, {"a": "x fell", "b": "y fell"}, {"a": "z fell", "b": REBOOTED}]
    parts = [window_facts(_window({"a": [1.0], "b": [1.0]}, flaw)) for flaw in flaws]
    assert merge_facts(parts).flaws == {"a": "x fell", "b": "y fell"}
    parts = [window_facts(_window({name: [5.0]})) for name in ("a", "b")]
    assert merge_facts(parts).packets == {"a": 5.0, "b": 5.0}  # the second is known only later


@pytest.mark.parametrize("silent", [False, True])
def test_a_reboot_between_two_blocks_is_told(silent: bool) -> None:
    quiet = replace(window_facts(_window({"a": [NAN]})), boots={})
    first = window_facts(_window({"a": [1.0], "b": [1.0]}, boot="one"))
    second = window_facts(_window({"a": [1.0]}, boot="two"))
    merged = merge_facts([first, *[quiet] * silent, second])
    assert merged.flaws == {"a": REBOOTED}
    assert merged.boots == {"a": ["one", "two"], "b": ["one", "one"]}
    assert merge_facts([first, first]).flaws == {}


def test_a_host_is_as_idle_as_in_its_idlest_block() -> None:
    parts = [window_facts(_window({"a": [own] * 3}), {"a": 100.0}) for own in (100.0, 0.0, 100.0)]
    merged = merge_facts(parts)
    assert (merged.idle, merged.idlest) == ({"a": pytest.approx(1 / 3)}, {"a": 1.0})
    assert merge_facts([merged, parts[0]]).idlest == {"a": 1.0}


def test_what_an_earlier_version_did_not_keep_is_not_known() -> None:
    kept = encoded(window_facts(_window({"a": [1.0]})))
    for fact in ("idlest", "boots", "measured"):
        del kept[fact]
    old = decoded("facts", Facts, kept)
    new = window_facts(_window({"a": [0.0]}), {"a": 100.0})
    merged = merge_facts([old, new])
    assert merged.measured is None
    assert (merged.boots, merged.flaws) == ({"a": ["b", "b"]}, {})
    assert merged.idlest == {"a": 1.0}


rates = st.lists(st.floats(0, 1e6), min_size=1, max_size=12)


@examples(50)
@given(st.tuples(rates, rates), st.integers(1, 11))
def test_blocks_merged_are_the_window(pair: tuple[list[float], list[float]], cut: int) -> None:
    size = min(map(len, pair))
    usual = {"a": 1e5, "b": 1e6}
    packets = {host: own[:size] for host, own in zip("ab", pair)}
    whole = window_facts(_window(packets), usual)
    blocks = [{h: own[:cut] for h, own in packets.items()}]
    if cut < size:
        blocks.append({h: own[cut:] for h, own in packets.items()})
    starts = (0.0, 10.0 * cut)
    merged = merge_facts(
        [window_facts(_window(block, start=at), usual) for at, block in zip(starts, blocks)]
    )
    for fact in ("samples", "newest", "flaws", "boots", "measured"):
        assert getattr(merged, fact) == getattr(whole, fact)
    for fact in ("packets", "idle"):
        assert getattr(merged, fact) == pytest.approx(getattr(whole, fact))
    assert merged.load.peak == pytest.approx(whole.load.peak)
