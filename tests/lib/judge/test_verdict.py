# SPDX-License-Identifier: Apache-2.0
"""What may be decided of which findings."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from edgetune.base.documents.look import Doubt
from edgetune.judge.verdict import Findings, decide, hindered_by

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
