# SPDX-License-Identifier: Apache-2.0
"""Records that another version of the pack wrote; see also tests/pack/test_upgrade.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgetune import RECORD_SCHEMA
from edgetune.base.documents.look import Conclusion
from edgetune.base.documents.words import Decision, Verdict
from edgetune.base.errors import DamagedError, RefusedError
from edgetune.rollout.ownership.lease import as_owner
from edgetune.rollout.record.rollout import read_rollout, save_plan
from tests.support import ROOT
from tests.support.builders import plan
from tests.support.world import EmptyWorld, changing

DOCUMENTS: dict[str, dict[str, Any]] = json.loads(
    (ROOT / "tests/fixtures/versions/rollout_0.10.0.json").read_text(encoding="utf-8")
)["records"]
(HEAD,) = [key for key in DOCUMENTS if key.startswith("edgetune.rollout.")]
ROLLOUT = HEAD[len("edgetune.rollout.") :]


def _world(folder: Path, **changed: Any) -> EmptyWorld:
    world = EmptyWorld(folder)
    for key, document in DOCUMENTS.items():
        more = changed if key == HEAD else {}
        world.context.store.put(key, json.dumps({**document, **more}))
    world.rollout = ROLLOUT
    return world


def test_version_0_6_wrote_down_of_a_quarantine_its_reason_alone(tmp_path: Path) -> None:
    reason = "did not come back within 900 s"
    world = _world(tmp_path, schema=2, quarantined={"e002": {"reason": reason}})
    result = world.run("rollout_status", rollout="", host="e002")
    assert result["ids"] == [ROLLOUT]
    why = result["rollouts"][0]["quarantined"]["e002"]
    assert {name: known for name, known in why.items() if known not in (None, "", {})} == {
        "reason": reason
    }
    text = world.status(rollout=ROLLOUT)
    assert f"quarantined: e002: {reason}" in text and "since an earlier version" in text
    assert "NOT known to be out of service" in text
    world.take_over()
    assert world.mark("soaking")["quarantined"] == {"e002": reason}


@pytest.mark.parametrize(
    ("metrics", "ratio"), [([{"metric": "listen_drops", "ratio": 0.4}], 0.4), ([], None)]
)
def test_a_head_of_0_10_kept_more_of_its_newest_look(
    tmp_path: Path, metrics: list[dict[str, Any]], ratio: float | None
) -> None:
    kept = {"verdict": "improved", "decision": "promote", "reason": "so", "power": None}
    more = {"look": None, "draws": 20, "metrics": metrics}
    world = _world(tmp_path, verdict={**kept, **more})
    told = Conclusion(Verdict.IMPROVED, Decision.PROMOTE, "so", ratio)
    assert world.head.verdict == told
    world.take_over()
    assert world.head.verdict == told


def test_a_damaged_verdict_of_0_10_is_refused(tmp_path: Path) -> None:
    kept = {"verdict": "improved", "decision": "promote", "reason": "so"}
    for metrics in (["x"], "x", {"x": 1}, [{"ratio": "x"}]):
        world = _world(tmp_path, verdict={**kept, "metrics": metrics})
        with pytest.raises(DamagedError, match="verdict.ratio: must be a number"):
            read_rollout(world.context, ROLLOUT)


def test_a_record_of_a_newer_version_is_refused_with_the_way_out(tmp_path: Path) -> None:
    world = _world(tmp_path, schema=RECORD_SCHEMA + 1)
    says = rf"schema {RECORD_SCHEMA + 1}, this edgetune understands up to {RECORD_SCHEMA}; carry "
    with pytest.raises(
        RefusedError, match=says + "the rollout on with the version of the pack that wrote it"
    ):
        read_rollout(world.context, ROLLOUT)
    with pytest.raises(RefusedError, match=says):
        world.run("take_over_rollout")
    world = _world(tmp_path)
    (key,) = [key for key in DOCUMENTS if key.endswith(f"batch.{ROLLOUT}.0")]
    world.context.store.put(key, json.dumps({**DOCUMENTS[key], "schema": RECORD_SCHEMA + 1}))
    with pytest.raises(RefusedError, match=f"a record has schema {RECORD_SCHEMA + 1}"):
        world.batch(0)


def test_a_record_of_0_1_is_refused_with_the_way_out(tmp_path: Path) -> None:
    world = _world(tmp_path, schema=1)
    says = (
        f"schema 1, this edgetune understands 2 to {RECORD_SCHEMA}; carry the rollout on with 0.10"
    )
    with pytest.raises(RefusedError, match=says):
        read_rollout(world.context, ROLLOUT)


@pytest.mark.parametrize("state", ["changing", "soaking", "rolling_back", "complete"])
def test_a_newer_version_s_rollout_blocks_its_pop_until_it_has_ended(
    tmp_path: Path, state: str
) -> None:
    world = _world(tmp_path, schema=RECORD_SCHEMA + 1, state=state)
    made = plan(tmp_path)
    save_plan(world.context, made)
    if state == "complete":
        assert world.run("claim_pop", made.digest)["rollout"] != ROLLOUT
        return
    with pytest.raises(RefusedError, match=f"lab1 has a rollout that is {state}: {ROLLOUT}"):
        world.run("claim_pop", made.digest)


def test_a_batch_of_the_version_before_waits_for_nothing(tmp_path: Path) -> None:
    world = changing(tmp_path)
    key = f"edgetune.batch.{world.rollout}.0"
    opened = as_owner(world.context, world.rollout)
    opened.save_batch(opened.batch(0))
    document = json.loads(world.context.store.get(key) or "")
    del document["wait"]
    world.context.store.put(key, json.dumps({**document, "schema": 2}))
    assert world.batch(0).wait is None
