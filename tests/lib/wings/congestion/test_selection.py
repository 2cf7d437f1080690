# SPDX-License-Identifier: Apache-2.0
"""Which prefixes are chosen, and that the history says so whatever rounds are missing or told
twice."""

from __future__ import annotations

import base64
import json
import math
import tracemalloc
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.agent.vocabulary.prefixes import number_of, text_of
from edgetune.base.documents.congestion import Thresholds
from edgetune.base.documents.reading import encoded
from edgetune.base.errors import DamagedError, RefusedError, SourceError
from edgetune.wings.congestion.history import History, read_history
from edgetune.wings.congestion.rows import MEASURES, PrefixRows, make_rows
from edgetune.wings.congestion.selection import (
    Excluded,
    Selection,
    advance,
    put_off,
    read_selection,
)
from tests.support.examples import examples

FIRST = 5_877_000
NOBODY = Excluded([])
WINDOW = 6
FEW = Thresholds(window=WINDOW, slowest=0.2, sockets=3, stay=4, warmup=1)
USUAL: Mapping[str, float] = {
    "sockets": 10,
    "delivery_rate": 1e6,
    "goodput": 5e5,
    "rtt_ms": 40.0,
    "min_rtt_ms": 30.0,
    "bytes_acked": 9e5,
    "bytes_sent": 1e6,
    "bytes_retransmitted": 1e4,
}


def rows(number: int, told: Mapping[str, Mapping[str, float] | float]) -> PrefixRows:
    """Of prefixes, each with what is special about it, or with its delivery rate."""
    own = [each if isinstance(each, Mapping) else {"delivery_rate": each} for each in told.values()]
    columns = {name: [{**USUAL, **each}[name] for each in own] for name in MEASURES}
    return make_rows("lab1: somebody", number, [number_of(each) for each in told], columns)


def others(number: int, rate: float = 1e6) -> dict[str, float]:
    return {f"198.51.{i}.0/24": rate * (1 + i) for i in range(number)}


def new_selection(window: int = WINDOW, salt: str = "s") -> Selection:
    return Selection("lab1", salt, History(window))


def after(
    rounds: Sequence[Mapping[str, Any] | None],
    thresholds: Thresholds = FEW,
    excluded: Excluded = NOBODY,
    selection: Selection | None = None,
    first: int = FIRST,
) -> Selection:
    """The selection after some rounds, None for a round that is missing."""
    found = selection or new_selection(thresholds.window)
    for number, told in enumerate(rounds, first):
        if told is not None:
            found = advance(found, rows(number, told), thresholds, excluded)
    return found


def chosen(selection: Selection) -> list[str]:
    return [own.prefix for own in selection.chosen]


SLOW = {"203.0.113.0/24": 1e3}
"""Somebody is always among the slowest fifth: without this one, the slowest of the others."""


def is_chosen(selection: Selection) -> bool:
    return "203.0.113.0/24" in chosen(selection)


MINE = {**others(4), **SLOW}
QUIET = {**MINE, "203.0.113.0/24": {"delivery_rate": 1e3, "sockets": 2}}
STEPS = {"S": MINE, "F": {**others(4), "203.0.113.0/24": 5e6}, "q": QUIET, "-": None}


def in_rounds(states: str, thresholds: Thresholds = FEW) -> Selection:
    """After rounds in which it is slow, fast, hardly measured, or which are missing."""
    return after([STEPS[own] for own in states], thresholds)


def test_what_is_slow_all_the_time_is_chosen_and_nothing_else() -> None:
    assert chosen(in_rounds("SSSSSS")) == ["203.0.113.0/24"]
    own = in_rounds("SSSSSS").chosen[0]
    assert (own.since, own.duty, own.flaps) == (FIRST + 2, 1.0, 0.0)
    assert own.before[0] == pytest.approx(math.log(1e3), abs=1e-5)
    assert own.before[1] == pytest.approx(math.log(1e4 / 1e6), abs=0.15)


@pytest.mark.parametrize(
    ("states", "flaps", "is_it"),
    [
        ("SS", FEW.flaps, False),
        ("SSS", FEW.flaps, True),
        # One that comes and goes; its duty cycle would be enough.
        ("SFSFSFSFSFSF", FEW.flaps, False),
        ("SSFSSS", FEW.flaps, False),
        ("SSFSSS", 1.0, True),
        # It was chosen before, and stays.
        ("SSSFSS", FEW.flaps, True),
        # One that is seldom measured.
        ("qqqqSS", FEW.flaps, False),
        ("qqqSSS", FEW.flaps, True),
    ],
)
def test_a_prefix_is_chosen_by_its_last_rounds(states: str, flaps: float, is_it: bool) -> None:
    assert is_chosen(in_rounds(states, replace(FEW, flaps=flaps))) == is_it


@pytest.mark.parametrize(
    ("stay", "told", "rounds"),
    [
        # Chosen in round 2; four rounds later its duty cycle is 2/6.
        (4, True, 3),
        # Longer than the window of its duty cycle: else nobody would see for how long it helps.
        (8, True, 7),
        # No treatment made it faster.
        (1000, False, 3),
        (1000, True, 14),
    ],
)
def test_what_was_chosen_stays_for_a_while_though_it_got_fast(
    stay: int, told: bool, rounds: int
) -> None:
    stays = replace(FEW, stay=stay)
    found, ends = in_rounds("S-SS", stays), []
    assert found.chosen[0].flaps == 0  # a round that is missing is no change
    for number in range(FIRST + 4, FIRST + 18):
        before = found if told else put_off(found, [*SLOW], number)
        found = advance(before, rows(number, {**others(4), "203.0.113.0/24": 5e6}), stays, NOBODY)
        ends.append(is_chosen(found))
    assert ends == [True] * rounds + [False] * (14 - rounds)
    if rounds == 14:
        # What is not measured for a window goes at once.
        found = after([others(4)] * WINDOW, stays, selection=found, first=FIRST + 18)
        assert (is_chosen(found), found.gone) == (False, ("203.0.113.0/24",))


def test_after_a_gap_longer_than_the_window_all_begins_anew_and_who_is_gone_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = advance(in_rounds("SSS"), rows(FIRST + 100, MINE), FEW, NOBODY)
    measured, duty, flaps = found.history.counts(np.arange(len(found.history)))
    assert set(measured) == {1} and set(flaps) == {0}
    assert chosen(found) == ["203.0.113.0/24"], "it was chosen before"
    found = after([{f"203.{n}.{i}.0/24": 1e6 + i for i in range(50)} for n in range(60)])
    assert len(found.history) <= 50 * (WINDOW + 1) * 1.25 + 50
    monkeypatch.setattr("edgetune.wings.congestion.history.MOST_PREFIXES", 60)
    full = after([others(40), {**others(40), **{f"203.0.{i}.0/24": 1e5 for i in range(40)}}])
    assert len(full.history) == 60


def test_a_round_that_is_late_or_not_whole_changes_nothing() -> None:
    found, some = in_rounds("SSS"), [*MINE.items()]
    text = found.text()
    for number in (FIRST + 2, FIRST + 1, FIRST + 3 - WINDOW):
        again = advance(found, rows(number, others(9, 1.0)), FEW, NOBODY)
        assert again is found and again.text() == text
    with pytest.raises(RefusedError, match=r"has 2 prefixes .* had 5: it is not whole"):
        advance(found, rows(FIRST + 3, dict(some[:2])), FEW, NOBODY)
    # Else no round would count until that time came.
    with pytest.raises(RefusedError, match=r"lab1: .* ends 1002 rounds after .* a clock was ahead"):
        advance(found, rows(FIRST - 1000, others(4)), FEW, NOBODY)
    assert found.text() == text
    assert len(advance(found, rows(FIRST + 3, dict(some[:3])), FEW, NOBODY).history)
    # Another window begins anew and lets go of nobody.
    found = advance(found, rows(FIRST + 4, MINE), replace(FEW, window=8), NOBODY)
    assert found.history.window == 8 and is_chosen(found)
    assert {*found.history.counts(np.arange(5))[0]} == {1}


@pytest.mark.parametrize("special", [{"sockets": 2}, {"min_rtt_ms": 1.0}, None])
def test_a_round_in_which_nobody_counts_is_none(special: Mapping[str, float] | None) -> None:
    """Else ports that are not those of clients would look like a PoP that does well."""
    told = {} if special is None else dict.fromkeys(others(4), special)
    with pytest.raises(RefusedError, match=r"no prefix that counts: one with 3 sockets .* of 5 ms"):
        advance(new_selection(), rows(FIRST, told), FEW, NOBODY)


def test_caps_take_the_worst_first() -> None:
    slow = {f"203.0.{i}.0/24": 1e3 + i for i in range(10)}
    told = [{**others(40), **slow}] * 3
    new = Thresholds(**{**vars(FEW), "new": 2, "prefixes": 3})
    found = after(told, new)
    assert chosen(found) == ["203.0.0.0/24", "203.0.1.0/24"]
    found = after([told[0]], new, selection=found, first=FIRST + 3)
    assert chosen(found) == ["203.0.0.0/24", "203.0.1.0/24", "203.0.2.0/24"]
    found = after([told[0]], new, selection=found, first=FIRST + 4)
    assert len(found.chosen) == 3 and found.new == ()


def test_excluded_networks_short_paths_and_unknown_ones_are_not_looked_at() -> None:
    near = {"delivery_rate": 1e3, "min_rtt_ms": 1.0}
    unknown = {"delivery_rate": 1e3, "min_rtt_ms": math.nan, "rtt_ms": 2.0}
    # Nobody can say that the cause of a path without any round-trip time is the path.
    silent: Any = {"delivery_rate": 1, "min_rtt_ms": None, "rtt_ms": None}
    odd = {"203.0.113.0/24": near, "203.0.114.0/24": unknown, "203.0.115.0/24": silent}
    assert chosen(after([{**others(4), **odd}] * 4)) == ["198.51.0.0/24"]
    told = [{**MINE, "2001:db8:0:100::/56": 1e3}] * 3
    for network, rest in (
        ("203.0.112.0/23", "2001:db8:0:100::/56"),
        ("2001:db8::/32", "203.0.113.0/24"),
    ):
        assert chosen(after(told, excluded=Excluded([network]))) == [rest]
    for network in ("10.0.0.1/8", "::ffff:10.0.0.0/104", "::/0", "what", ""):
        with pytest.raises(ValueError):
            Excluded([network])


KEYS = st.integers(0, (1 << 24) - 1) | st.integers(1 << 56, (1 << 57) - 1)


@given(st.sets(KEYS, max_size=30), st.lists(st.tuples(KEYS, st.integers(0, 56)), max_size=5))
@examples(200)
def test_exclusions_hold_what_overlaps_them(
    keys: set[int], networks: list[tuple[int, int]]
) -> None:
    from ipaddress import ip_network

    own = [ip_network(text_of(key)) for key in sorted(keys)]
    told = [
        net
        for key, longer in networks
        for base in [ip_network(text_of(key))]
        for net in [base.supernet(new_prefix=max(1, base.prefixlen - longer))]
        if net.version == 4 or not net.overlaps(ip_network("::ffff:0:0/96"))
    ]
    excluded = Excluded([str(net) for net in told])
    expected = [
        any(net.version == each.version and net.overlaps(each) for net in told) for each in own
    ]
    assert [*excluded.hold(np.array(sorted(keys), dtype=np.uint64))] == expected


# What a prefix does in a round: it is not measured, it is slow, or it is not.
ROUNDS = st.lists(
    st.none() | st.lists(st.sampled_from("-SF"), min_size=8, max_size=8), min_size=1, max_size=25
)


def _told(states: Sequence[str]) -> dict[str, Any]:
    """Eight prefixes among so many others that all of them can be slow."""
    rates = {"S": 1.0, "F": 9e9}
    mine = {f"203.0.{i}.0/24": rates[own] for i, own in enumerate(states) if own != "-"}
    slow = sum(own == "S" for own in states)
    return {**{f"198.51.{i}.0/24": 1e6 + i for i in range(40 - len(mine) + slow)}, **mine}


@given(ROUNDS)
@examples(150)
def test_counts_are_those_of_the_rounds_of_the_window(rounds: list[list[str] | None]) -> None:
    """Against the plainest way to count, with rounds that are missing."""
    history = History(WINDOW)
    for number, states in enumerate(rounds, FIRST):
        if states is None:
            continue
        told = rows(number, _told(states))
        # So that as many are slow as are told to be.
        slow = sum(own == "S" for own in states)
        share = (slow - 0.5) / (len(told) - 1) if slow else 0.0
        history.add(told, Thresholds(**{**vars(FEW), "slowest": max(share, 0.0)}))
    mine = np.array([number_of(f"203.0.{i}.0/24") for i in range(8)], dtype=np.uint64)
    places = history.find(mine)
    newest = max((n for n, own in enumerate(rounds) if own is not None), default=-1)
    for index, place in enumerate(places):
        states = [own[index] if own else "-" for own in rounds[: newest + 1]]
        last = states[-WINDOW:]
        if place < 0:
            assert "F" not in last and "S" not in last
            continue
        carried: list[str] = []
        for number, own in enumerate(states):
            if own != "-" and {*states[max(0, number - WINDOW + 1) : number]} <= {"-"}:
                carried = [own] * number
            carried.append(own if own != "-" else carried[-1] if carried else "F")
        window = carried[-WINDOW:]
        flaps = sum(one != other for one, other in zip(window, window[1:]))
        counted = [int(own[0]) for own in history.counts(np.array([place]))]
        assert counted == [
            sum(own != "-" for own in last),
            sum(own == "S" for own in last),
            flaps,
        ]


@given(ROUNDS, st.integers(0, 24))
@examples(60)
def test_a_restart_changes_nothing(rounds: list[list[str] | None], at: int) -> None:
    told = [None if own is None else _told(own) for own in rounds]
    whole = after(told)
    part = after(told[:at])
    rest = after(told[at:], selection=read_selection("k", part.text()), first=FIRST + at)
    assert (rest.chosen, rest.new, rest.gone) == (whole.chosen, whole.new, whole.gone)
    assert _seen(rest.history) == _seen(whole.history)


def _seen(history: History) -> dict[int, Any]:
    """What is known of each prefix that the window has seen; others are forgotten by and by."""
    found = {}
    for place, key in enumerate(history.keys):
        counts = [int(own[0]) for own in history.counts(np.array([place]))]
        if counts[0]:
            found[int(key)] = counts, [float(level) for level in history.levels[:, place]]
    return found


SELECTION = after([{**others(4), **SLOW}] * 4)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda d: d["history"].update(window=1), "window"),
        (lambda d: d["history"].update(window=True), "window"),
        (lambda d: d["history"].update(newest=-2), "newest"),
        (lambda d: d["history"].update(prefixes=9), "planes"),
        (lambda d: d["history"].update(prefixes=10**9), "prefixes"),
        (lambda d: d["history"].update(planes="AAAA"), "planes"),
        (lambda d: d["history"].update(planes="no base64!"), "planes"),
        (lambda d: d["chosen"][0].update(prefix="203.0.113.0/25"), "prefix"),
        (lambda d: d["chosen"][0].update(prefix="203.0.113.0/24\n"), "prefix"),
        (lambda d: d["chosen"][0].update(before=[]), "before"),
        (lambda d: d["chosen"].append(d["chosen"][0]), "chosen"),
        (lambda d: d.update(chosen={}), "chosen"),
        (lambda d: d.update(new=[1]), "new"),
        (lambda d: d.pop("salt"), "other fields"),
        (lambda d: d.update(history=None), ""),
    ],
)
def test_a_damaged_selection_is_named(change: Any, field: str) -> None:
    document = json.loads(SELECTION.text())
    change(document)
    with pytest.raises(DamagedError, match=f"k is damaged: .*{field}"):
        read_selection("k", json.dumps(document))


def test_a_history_that_inflates_without_end_is_not_inflated() -> None:
    document = encoded(History(WINDOW).document())
    document["planes"] = base64.b64encode(zlib.compress(b"\0" * 10**8)).decode()
    tracemalloc.start()
    try:
        with pytest.raises(DamagedError, match="planes"):
            read_history("k", document)
        assert tracemalloc.get_traced_memory()[1] < 10**7
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delivery_rate", 1e12),
        ("delivery_rate", 0),
        ("delivery_rate", -1),
        ("rtt_ms", 1e9),
        ("min_rtt_ms", -1.0),
        ("bytes_sent", 1e19),
        ("sockets", 0),
    ],
)
def test_a_row_that_no_network_has_is_left_out(name: str, value: float) -> None:
    keys = list(range(20))
    columns: dict[str, list[Any]] = {own: [USUAL[own]] * 20 for own in MEASURES}
    columns[name][7] = value
    assert [*make_rows("w", 1, keys, columns).prefixes] == [k for k in keys if k != 7]
    columns[name] = [value] * 20
    with pytest.raises(SourceError, match="w: 20 of 20 prefixes of round 1"):
        make_rows("w", 1, keys, columns)


@pytest.mark.parametrize(
    ("key", "columns", "says"),
    [
        (1, {}, "comes twice"),
        ("2", {}, "no whole number"),
        (True, {}, "no whole number"),
        *((key, {}, "is none") for key in (-2, 1 << 30, 1 << 57, 10**30)),
        (2, {"delivery_rate": [1.0, "1e400"]}, "delivery_rate is not a number"),
        (2, {"delivery_rate": [1.0, None]}, "delivery_rate is not a number"),
        (2, {"rtt_ms": [1.0]}, "rtt_ms is not a number"),
        (2, {"rtt_ms": [1.0, True]}, "rtt_ms is not a number"),
        (2, {"bytes_sent": [1.0, 10**400]}, "bytes_sent has a number that is none"),
    ],
)
def test_columns_of_strangers_are_named(key: Any, columns: dict[str, Any], says: str) -> None:
    usual = {own: [USUAL[own]] * 2 for own in MEASURES}
    with pytest.raises(SourceError, match=f"^w: .*{says}"):
        make_rows("w", 1, [1, key], {**usual, **columns})
