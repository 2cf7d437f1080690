# SPDX-License-Identifier: Apache-2.0
"""Blocks of time in which all chosen prefixes are treated, or none."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.agent.vocabulary.prefixes import number_of
from edgetune.base.documents.congestion import ROUND, Chosen, Configuration, Thresholds, Treated
from edgetune.base.documents.rounds import (
    CHOSEN,
    MOST_ROWS,
    NEIGHBOURS,
    TOGETHER,
    Decisions,
    LookTaken,
    RoundRow,
    Rounds,
    read_decisions,
    read_rounds,
)
from edgetune.base.errors import DamagedError
from edgetune.wings.congestion.blocks import changes_of, compare_blocks, counts, is_on
from edgetune.wings.congestion.history import History
from edgetune.wings.congestion.rows import MEASURES, PrefixRows
from tests.support.examples import examples

ONE_LOOK = Thresholds(block=3, looks=1)
PREFIXES = ["10.1.1.0/24", "10.1.2.0/24", "10.2.1.0/24", "2001:db8::/56", "2001:db8:1::/56"]


def rows_of(number: int, rates: list[float]) -> PrefixRows:
    measures = {name: np.full(len(rates), 50.0) for name in MEASURES}
    measures["delivery_rate"] = np.array(rates)
    keys = np.array([number_of(own) for own in PREFIXES], dtype=np.uint64)
    return PrefixRows(number, keys, measures)


def chosen(prefix: str, rate: float | None) -> Chosen:
    before = None if rate is None else math.log(rate)
    return Chosen(prefix, 0, False, 1.0, 0.0, 0, False, [before, None])


@given(st.text(max_size=5), st.integers(0, 10**7), st.integers(3, 288))
@examples(50)
def test_one_block_of_each_pair_is_on_and_a_block_is_so_from_end_to_end(
    salt: str, place: int, block: int
) -> None:
    first, second = (is_on(salt, own * block, block) for own in (2 * place, 2 * place + 1))
    assert first is not second
    assert is_on(salt, 2 * place * block + block - 1, block) is first


def test_which_block_is_on_is_drawn() -> None:
    drawn = [is_on("salt", 12 * pair, 6) for pair in range(200)]
    assert 70 < sum(drawn) < 130
    assert drawn != [is_on("other", 12 * pair, 6) for pair in range(200)]


def test_the_first_third_of_a_block_is_washed_out() -> None:
    assert [counts(own, Thresholds(block=6)) for own in range(12, 18)] == 2 * [False] + 4 * [True]


def test_changes_are_of_the_chosen_their_networks_and_both_by_their_rates() -> None:
    history = History(4)
    history.add(rows_of(0, [100.0, 300.0, 700.0, 50.0, 80.0]), ONE_LOOK)
    own = [chosen("10.1.1.0/24", 100.0), chosen("2001:db8::/56", None)]
    found = changes_of(own, history, rows_of(1, [200.0, 150.0, 7.0, 9.0, 40.0]))
    # The other one is in no network of a chosen one; 2001:db8::/32 has one of an unknown rate.
    assert found[CHOSEN][0] == pytest.approx(math.log(2))
    assert found[NEIGHBOURS][0] == pytest.approx(math.log(0.5), rel=1e-6)
    both = (100 * math.log(2) + 300 * math.log(0.5)) / 400
    assert found[TOGETHER][0] == pytest.approx(both, rel=1e-6)
    assert changes_of([], history, rows_of(1, [1.0] * 5)) == {}


@given(st.lists(st.floats(1.0, 1e3), min_size=2, max_size=2), st.floats(1.1, 20.0))
@examples(50)
def test_what_only_one_takes_from_the_other_is_no_gain(rates: list[float], takes: float) -> None:
    history = History(4)
    history.add(rows_of(0, [*rates, 1.0, 1.0, 1.0]), ONE_LOOK)
    parts = np.array([rates[0] * takes, rates[1]])
    after = parts * sum(rates) / parts.sum()
    found = changes_of(
        [chosen(PREFIXES[0], rates[0])], history, rows_of(1, [*after, 1.0, 1.0, 1.0])
    )
    gain, lost, both = (found[name][0] for name in (CHOSEN, NEIGHBOURS, TOGETHER))
    assert gain is not None and lost is not None and both is not None
    assert gain > 0 >= lost and both <= 1e-5


def told(pairs: int, effect: float, **more: Any) -> list[RoundRow]:
    """Rounds of so many pairs of blocks, whose chosen prefixes drift."""
    dice = np.random.default_rng(pairs)
    found = []
    for number in range(6 * pairs):
        on = is_on("salt", number, 3)
        own = 0.02 * number + effect * on + float(dice.normal(0, 0.02))
        changes: dict[str, Any] = {name: [own, None] for name in (CHOSEN, NEIGHBOURS, TOGETHER)}
        row: dict[str, Any] = {"on": on, "changes": changes, **more}
        found.append(RoundRow(number, 9, 9, 0, 0, {}, **row))
    return found


@pytest.mark.parametrize(("ratio", "better", "worse"), [(1.3, True, False), (0.7, False, True)])
def test_an_effect_is_found_by_blocks(ratio: float, better: bool, worse: bool) -> None:
    found = compare_blocks(told(12, math.log(ratio)), "salt", ONE_LOOK, 1)
    for effects in found.values():
        assert (effects[0].is_better, effects[0].is_worse) == (better, worse)
        assert effects[0].ratio == pytest.approx(ratio, rel=0.05)
        assert (effects[0].treated, effects[0].held_out) == (12, 12)
        assert effects[1].ratio is None, "nothing is known of it"
    assert [found[name][0].alpha for name in found] == [0.025, 0.025, 0.05]


@pytest.mark.parametrize("more", [{"on": None}, {"on": True}, {"changes": {}}])
def test_a_block_that_was_not_as_drawn_does_not_count(more: dict[str, Any]) -> None:
    rows = [*told(12, 0.3)[:-6], *told(12, 0.3, **more)[-6:]]
    assert compare_blocks(rows, "salt", ONE_LOOK, 1)[CHOSEN][0].treated == 11


def test_a_round_was_treated_if_hosts_had_prefixes_from_its_beginning_to_its_end() -> None:
    rounds, full = Rounds("lab1"), Configuration("lab1", 1, "bbr", 3600, [Treated(PREFIXES[0])])
    empty = replace(full, number=2, prefixes=[])
    rounds.hold(full, 10 * ROUND + 1.0)
    assert [rounds.treated_in(own) for own in (9, 10, 11)] == [False, None, True]
    rounds.hold(replace(full, number=3), 11 * ROUND + 1.0)
    assert rounds.treated_in(11), "it is another one, but hosts treat as before"
    rounds.hold(empty, 12 * ROUND)
    assert [rounds.treated_in(own) for own in (11, 12)] == [True, False]
    assert rounds.treatment == replace(full, number=3) and rounds.configuration == empty
    rounds.hold(None, 13 * ROUND)
    assert rounds.treatment is None


def test_rounds_of_a_time_without_blocks_are_read() -> None:
    rounds = Rounds("lab1", rows=[RoundRow(1, 2, 3, 4, 5)])
    document = json.loads(rounds.document())
    for own, names in (
        (document, ("switched", "resting")),
        (document["rows"][0], ("on", "changes")),
    ):
        for name in names:
            del own[name]
    assert read_rounds("lab1", json.dumps(document)) == rounds
    decisions = Decisions("lab1", "salt", looks=[LookTaken(1, 2.0, [], [])])
    document = json.loads(decisions.document())
    del document["looks"][0]["blocks"]
    assert read_decisions("lab1", json.dumps(document)) == decisions


def test_changes_of_another_length_are_damaged() -> None:
    rounds = Rounds("lab1", rows=[RoundRow(1, 2, 3, 4, 5, {}, True, {CHOSEN: [0.5]})])
    with pytest.raises(DamagedError, match="rows: has changes"):
        read_rounds("lab1", rounds.document())


def test_the_longest_block_that_is_taken_can_prove_a_harm() -> None:
    limits = Thresholds(block=28)
    rows = [
        RoundRow(number, 9, 9, 0, 0, {}, on, {CHOSEN: [-on + number / 1e6, None]})
        for number in range(1, MOST_ROWS + 1)
        for on in [is_on("salt", number, limits.block)]
    ]
    assert compare_blocks(rows, "salt", limits, 1)[CHOSEN][0].is_worse


def test_too_few_pairs_say_nothing() -> None:
    assert compare_blocks(told(4, 0.3), "salt", ONE_LOOK, 1)[CHOSEN][0].ratio is None
