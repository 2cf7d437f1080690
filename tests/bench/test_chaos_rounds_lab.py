# SPDX-License-Identifier: Apache-2.0
"""Rounds of congestion control under faults on the hosts of a lab: what a seed says, what is seen
of it from outside, and one seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import chaos
from bench.chaos import breakage, rounds, schedule
from bench.chaos.rounds import QUICK
from bench.chaos.schedule import BACK, ENDINGS, NOT_BOTH, ROUNDS_KINDS, SOURCE, make_rounds
from tests.bench.test_chaos import edited

SEED = 17
"""Everything of a round dies while hosts are told; a person takes it back in the end."""


def test_a_seed_decides_everything() -> None:
    assert make_rounds(7) == make_rounds(7) != make_rounds(8)


def test_sixty_seeds_hold_every_fault_and_both_endings() -> None:
    drawn = [make_rounds(seed) for seed in range(1, 61)]
    assert {each.ending for each in drawn} == set(ENDINGS)
    assert {fault.kind for each in drawn for fault in each.faults} == set(ROUNDS_KINDS)
    assert set(breakage.KINDS) == set(ROUNDS_KINDS) | set(schedule.KINDS)
    assert {BACK, SOURCE} == set(ROUNDS_KINDS) - set(schedule.KINDS)
    assert not any({fault.kind for fault in each.faults} >= NOT_BOTH for each in drawn)


def test_the_quick_pack_is_of_the_code_that_there_is(tmp_path: Path) -> None:
    copy = edited(tmp_path, QUICK)
    assert all(edit.new in (copy / edit.file).read_text() for edit in QUICK)


@pytest.mark.lab
@pytest.mark.long
@pytest.mark.skipif(bool(chaos.missing_requirements()), reason="the lab cannot run here")
def test_a_seed_of_rounds_keeps_every_promise() -> None:
    report = rounds.run_rounds(make_rounds(SEED))
    assert (report.broken, report.because) == ([], "")
