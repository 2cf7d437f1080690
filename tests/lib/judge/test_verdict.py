# SPDX-License-Identifier: Apache-2.0
"""What may be decided of which findings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.base.documents.look import Doubt, Spent
from edgetune.base.documents.plan import Groups
from edgetune.intent.metrics.catalogue import METRICS
from edgetune.judge.outliers import beside_control
from edgetune.judge.verdict import Findings, decide, hindered_by, sentence, undecided
from tests.support.cases import rows

CASES = Path(__file__).with_name("cases") / "verdict.yaml"

FINDINGS = st.builds(
    Findings,
    goal=st.sampled_from(["improve", "no_harm"]),
    harmed=st.booleans(),
    helped=st.booleans(),
    better=st.booleans(),
    doubts=st.lists(st.builds(Doubt, st.just("missing"), st.just("no data"), st.booleans())),
    last=st.booleans(),
    unwell=st.sampled_from([{}, {"e001": "fails 90% of its health checks"}]),
)


@given(FINDINGS)
def test_harm_beyond_what_biases_explain_is_taken_back_at_once(found: Findings) -> None:
    verdict, decision = decide(found)
    assert (decision == "roll_back") == found.harmed
    assert (verdict == "degraded") == found.harmed


@given(FINDINGS)
def test_only_what_is_proven_beyond_doubt_at_the_end_is_promoted(found: Findings) -> None:
    promoted = decide(found)[1] == "promote"
    assert promoted == (found.proven and not found.unwell)
    assert found.proven == (found.last and found.helped and not found.harmed and not found.doubts)


@given(FINDINGS)
def test_a_sick_test_host_is_told_where_it_alone_keeps_the_tuning_from_promotion(
    found: Findings,
) -> None:
    verdict, decision = decide(found)
    kept_back = decide(replace(found, unwell={})) == (verdict, "promote") and decision == "hold"
    told = "; but e001 fails 90% of its health checks" if kept_back else ""
    assert hindered_by(found) == told


@given(FINDINGS)
def test_nothing_but_harm_is_decided_before_the_end(found: Findings) -> None:
    decision = decide(found)[1]
    assert (decision == "wait") == (not found.last and decision != "roll_back")
    if found.doubts:
        assert decide(found)[0] in ("inconclusive", "degraded")


@pytest.mark.parametrize(
    ("metric", "ratio", "bounds", "said"),
    rows(CASES, "a_ratio_is_told_as_people_read_it"),
)
def test_a_ratio_is_told_as_people_read_it(
    metric: str, ratio: float, bounds: tuple[float, float], said: str
) -> None:
    found = sentence(METRICS[metric], ratio, bounds, "p = 0.034")
    first, last = said.split(" ... ")
    assert found == f"Test hosts {first} relative to their own baseline {last}, p = 0.034"


@pytest.mark.parametrize(
    ("goal", "help_p", "harm_p", "share", "biased", "said"),
    rows(CASES, "both_hypotheses_are_told_and_why_a_small_p_decided_nothing"),
)
def test_both_hypotheses_are_told_and_why_a_small_p_decided_nothing(
    goal: str, help_p: float | None, harm_p: float, share: float, biased: bool, said: str
) -> None:
    tests = {
        name: Spent(p, 0.05, 0.05 * share, share, 1.0, False, 0.0, "")
        for name, p in (("help", help_p), ("harm", harm_p))
    }
    assert undecided(goal, tests, biased) == said


def test_control_hosts_lie_about_one_and_the_distance_stays() -> None:
    rows = {
        "a": [1.0, 1.0, 1.2],
        "b": [1.0, 1.0, 0.3],
        "c": [1.0, 1.0, 2.7],
        "d": [None, 1.0, None],
    }
    strata = {"x": Groups(["a", "d"], ["b", "c"]), "y": Groups(["e"], [])}
    found = beside_control({"drops": {**rows, "e": [1.0, 2.0, 2.0]}}, strata)["drops"]
    assert [found[host][2] for host in "bc"] == pytest.approx([1 / 3, 3.0])
    assert found["a"][2] == pytest.approx(1.2 / 0.9)
    assert found["d"][2] is None and found["e"][2] == 2.0
