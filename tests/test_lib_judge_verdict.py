# SPDX-License-Identifier: Apache-2.0
"""What may be decided of which findings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgetune.judge.soundness import Doubt
from edgetune.judge.verdict import Findings, decide

FINDINGS = st.builds(
    Findings,
    goal=st.sampled_from(["improve", "no_harm"]),
    harmed=st.booleans(),
    helped=st.booleans(),
    better=st.booleans(),
    doubts=st.lists(st.builds(Doubt, st.just("missing"), st.just("no data"), st.booleans())),
    last=st.booleans(),
)


@given(FINDINGS)
def test_harm_beyond_what_biases_explain_is_taken_back_at_once(found: Findings) -> None:
    verdict, decision = decide(found)
    assert (decision == "roll_back") == found.harmed
    assert (verdict == "degraded") == found.harmed


@given(FINDINGS)
def test_only_what_is_proven_beyond_doubt_at_the_end_is_promoted(found: Findings) -> None:
    promoted = decide(found)[1] == "promote"
    assert promoted == (found.last and found.helped and not found.harmed and not found.doubts)


@given(FINDINGS)
def test_nothing_but_harm_is_decided_before_the_end(found: Findings) -> None:
    decision = decide(found)[1]
    assert (decision == "wait") == (not found.last and decision != "roll_back")
    if found.doubts:
        assert decide(found)[0] in ("inconclusive", "degraded")
