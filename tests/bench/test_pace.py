# SPDX-License-Identifier: Apache-2.0
"""bench.pace reads what a running StackStorm tells of a rollout; it needs one to measure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import pace
from bench._table import BenchError
from tests.support import FIXTURES

RECORDED = json.loads((FIXTURES / "stackstorm_rollout.json").read_text(encoding="utf-8"))


class Recorded:
    """The API of a StackStorm on which the recorded rollout ended."""

    def __init__(self, *outcomes: str, back: str = "succeeded", durations: str = "string") -> None:
        self.asked: list[str] = []
        self.given: list[dict[str, Any]] = []
        self._durations = durations
        self._outcomes, self._outcome, self._back = iter(outcomes), "promoted", back

    def call(self, method: str, path: str, **more: Any) -> Any:
        words = path.strip("/").split("/")
        if method == "POST":
            self.asked.append(more["document"]["action"])
            self.given.append(more["document"]["parameters"])
            if "roll_back" in self.asked[-1]:
                return {"id": "back"}
            self._outcome = next(self._outcomes, self._outcome)
            return {"id": RECORDED["rollout"]}
        if words[0] == "actions":
            return {"parameters": {name: {"type": self._durations} for name in pace.OPTIONS}}
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


@pytest.mark.parametrize(("durations", "baseline"), [("string", "1m"), ("number", 60)])
def test_durations_are_given_as_the_installed_version_takes_them(
    durations: str, baseline: object
) -> None:
    api = Recorded(durations=durations)
    pace._measure(api, "lab1", "accept_queue")  # type: ignore[arg-type]
    assert api.given[0]["baseline"] == baseline


def test_what_cannot_be_avoided_is_waited_for_by_everybody() -> None:
    live = {"a_batch": [4], "boots": [], "drains": [(False, 1.0)], "tasks": 9, "cpu": 2.0}
    boots = {**live, "boots": [3.0, 2.0], "drains": [(True, 6.0), (True, 5.0)]}
    figures = pace._figures(
        {("", "a"): [{**live, "wall": 300}], ("", "b"): [{**boots, "wall": 300}]}
    )
    assert (figures["boot"], figures["drains"]) == (2.0, {"a": 0.0, "b": 9.0})
    assert [row["unavoidable"] for row in figures["figures"]] == [150, 163]


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


def test_versions_stand_beside_each_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    installed: list[str] = []
    monkeypatch.setenv("ST2_API_URL", "http://127.0.0.1:1")
    monkeypatch.setattr(pace, "StackStorm", lambda environment: Recorded())
    monkeypatch.setattr(pace, "_install", lambda program, ref: installed.append(ref))
    words = ["--ref", "old", "--ref", "new", "--install", "x", "--rounds", "2"]
    assert pace.main([*words, "--json", str(tmp_path / "figures.json")]) == 0
    assert installed == ["old", "new", "old", "new"]
    shown = capsys.readouterr().out
    assert shown.count("\n| old ") == shown.count("\n| new ") == 2
    figures = json.loads((tmp_path / "figures.json").read_text())["figures"]
    assert figures[0]["a_batch"] == {"median": 7, "most": 8}


def test_without_a_running_stackstorm_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ST2_API_URL", raising=False)
    assert pace.main([]) == 0
    assert "no running StackStorm (ST2_API_URL is not set)" in capsys.readouterr().out
