# SPDX-License-Identifier: Apache-2.0
"""bench.pace reads what a running StackStorm tells of a rollout; it needs one to measure."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench import pace
from bench._table import BenchError
from tests.support import FIXTURES

RECORDED = json.loads((FIXTURES / "stackstorm_rollout.json").read_text(encoding="utf-8"))


class Recorded:
    """The API of a StackStorm on which the recorded rollout ended."""

    def __init__(self, *outcomes: str, back: str = "succeeded") -> None:
        self.asked: list[str] = []
        self._outcomes, self._outcome, self._back = iter(outcomes), "promoted", back

    def call(self, method: str, path: str, **more: Any) -> Any:
        words = path.strip("/").split("/")
        if method == "POST":
            self.asked.append(more["document"]["action"])
            if "roll_back" in self.asked[-1]:
                return {"id": "back"}
            self._outcome = next(self._outcomes, self._outcome)
            return {"id": RECORDED["rollout"]}
        if words[0] == "actions":
            return {"parameters": {name: {"type": "string"} for name in pace.OPTIONS}}
        if words[-1] == "children":
            return RECORDED["children"][words[1]]
        output = {"outcome": self._outcome, "rollout": "lab1-1", "message": "as it came"}
        status = self._back if words[1] == "back" else "succeeded"
        return {"id": words[1], "status": status, "result": {"output": output}}


def test_tasks_of_each_batch_are_counted_and_its_boots_and_drains_timed() -> None:
    found = pace._measure(Recorded(), "lab1", "accept_queue")  # type: ignore[arg-type]
    assert (found["tasks"], found["a_batch"]) == (99, [7, 6, 8, 7, 7, 8])
    assert len(found["boots"]) == 6
    assert all(0 < boot < 20 for boot in found["boots"])
    # Batches that reboot are drained.
    assert [drained for drained, _ in found["drains"]] == [True] * 6
    assert all(0 < took < 60 for _, took in found["drains"])


def test_a_rollout_that_is_held_is_taken_back_and_repeated() -> None:
    api = Recorded("held", "promoted")
    found = pace._promoted(api, "lab1", "accept_queue")  # type: ignore[arg-type]
    assert found["outcome"] == "promoted"
    assert api.asked == 2 * ["edgetune.rollout_pop", "edgetune.roll_back_pop"]


@pytest.mark.parametrize(
    ("api", "why"),
    [
        (Recorded("held"), "accept_queue: held 3 times"),
        (Recorded("rolled_back"), "accept_queue: rolled_back: as it came"),
        (Recorded(back="failed"), "lab1-1 was not taken back"),
    ],
)
def test_what_is_not_promoted_and_taken_back_is_no_figure(api: Recorded, why: str) -> None:
    with pytest.raises(BenchError, match=why):
        pace._promoted(api, "lab1", "accept_queue")  # type: ignore[arg-type]
