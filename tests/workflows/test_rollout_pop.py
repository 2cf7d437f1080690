# SPDX-License-Identifier: Apache-2.0
"""The workflow ``rollout_pop``, conducted by the local runner on a PoP in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgetune.base.errors import RefusedError
from tests.support.conducting import STEPS, Conductor
from tests.support.world import World


@pytest.mark.slow
def test_a_baseline_of_the_past_that_leaves_doubts_is_measured_anew(
    tmp_path: Path, clock: Any
) -> None:
    conductor = Conductor(World(tmp_path), tmp_path)
    answers = [{"waits": True, "message": "anew"}]

    def check_baseline(context: Any, **given: Any) -> Any:
        if not answers:
            raise RefusedError("of this test")
        return answers.pop()

    def sample_hosts(context: Any, **given: Any) -> Any:
        return {"due": True, "retry_after": 0, "samples": 8, "message": "8 hosts sampled"}

    own = {"check_baseline": check_baseline, "sample_hosts": sample_hosts}
    conductor.known = {**STEPS, **own}
    status, told = conductor.output("rollout_pop", rollout=conductor.world.rollout, dry_run=False)
    assert status == "failed" and "check_baseline: of this test" in told["message"]
    assert [step for step in conductor.steps if step in own] == [*reversed(own)] * 2
