# SPDX-License-Identifier: Apache-2.0
"""Records that another version of the pack wrote.

``fixtures/records_schema_1.json`` are those of the first version: a soaking rollout of
accept_queue on six hosts, of which three are changed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgetune import RECORD_SCHEMA
from edgetune.base.documents.look import Conclusion
from edgetune.base.documents.words import Decision, Verdict
from edgetune.base.errors import DamagedError, RefusedError
from edgetune.report.text import rollout_text
from edgetune.rollout.ownership.lease import as_owner
from edgetune.rollout.record.rollout import read_rollout, save_plan
from tests.support import ROOT
from tests.support.builders import plan
from tests.support.world import EmptyWorld, changing

DOCUMENTS: dict[str, dict[str, Any]] = json.loads(
    (ROOT / "tests" / "fixtures" / "records_schema_1.json").read_text(encoding="utf-8")
)
(HEAD,) = [key for key in DOCUMENTS if key.startswith("edgetune.rollout.")]
ROLLOUT = HEAD[len("edgetune.rollout.") :]
TUNED = {"e001", "e002", "e003"}


def _world(folder: Path, **changed: Any) -> EmptyWorld:
    world = EmptyWorld(folder)
    for key, document in DOCUMENTS.items():
        more = changed if key == HEAD else {}
        world.context.store.put(key, json.dumps({**document, **more}))
    world.rollout = ROLLOUT
    world.hosts.tuned = set(TUNED)
    return world


def test_a_record_of_the_first_version_is_understood(tmp_path: Path) -> None:
    world = _world(tmp_path)
    assert world.run("rollout_status", rollout="")["ids"] == [ROLLOUT]
    text = world.status(rollout=ROLLOUT)
    assert f"{ROLLOUT}  accept_queue on lab1: soaking" in text
    assert (world.head.wait, world.head.usual_load, world.head.recoveries) == (False, 0.0, 0)
    assert world.batch(0).hosts["e001"].boot_before == "8b2d217b-1894-4674-a717-8a3102bc6330"


def test_it_is_taken_over_above_the_epoch_that_hosts_have_seen_and_back_to_the_end(
    tmp_path: Path,
) -> None:
    world = _world(tmp_path)
    world.hosts.epochs = dict.fromkeys(TUNED, 4)
    assert world.take_over()["epoch"] == 5
    assert world.roll_back()["quarantined"] == {}
    assert world.head.state == "rolled_back"
    assert world.hosts.tuned == set()
    assert {n: world.hosts.reboots(n) for n in TUNED} == dict.fromkeys(TUNED, 1)
    assert set(world.hosts.told("restore")) == TUNED
    assert set(world.balancer.state.values()) == {"ready"}
    text = world.context.store.get(HEAD)
    assert text is not None and json.loads(text)["schema"] == RECORD_SCHEMA


def test_it_is_promoted_to_the_end(tmp_path: Path) -> None:
    world = _world(tmp_path)
    world.take_over()
    world.roll_all(world.mark("promoting"))
    world.mark("complete")
    assert world.hosts.tuned == {f"e{i:03d}" for i in range(6)}


def test_a_quarantine_of_the_first_version_is_understood(tmp_path: Path) -> None:
    world = _world(tmp_path, quarantined={"e002": "did not come back within 900 s"})
    result = world.run("rollout_status", rollout="", host="e002")
    assert result["ids"] == [ROLLOUT]
    why = result["rollouts"][0]["quarantined"]["e002"]
    assert {name: known for name, known in why.items() if known not in (None, "", {})} == {
        "reason": "did not come back within 900 s"
    }
    text = world.status(rollout=ROLLOUT)
    assert "quarantined: e002: did not come back within 900 s" in text
    assert "since an earlier version" in text
    world.take_over()
    marked = world.mark("soaking")
    assert marked["quarantined"] == {"e002": "did not come back within 900 s"}


@pytest.mark.parametrize(
    ("metrics", "ratio"), [([{"metric": "listen_drops", "ratio": 0.4}], 0.4), ([], None)]
)
def test_a_head_of_0_10_kept_more_of_its_newest_look(
    tmp_path: Path, metrics: list[dict[str, Any]], ratio: float | None
) -> None:
    kept = {"verdict": "improved", "decision": "promote", "reason": "so", "power": None}
    more = {"look": None, "draws": 20, "metrics": metrics}
    world = _world(tmp_path, schema=3, verdict={**kept, **more})
    told = Conclusion(Verdict.IMPROVED, Decision.PROMOTE, "so", ratio)
    assert world.head.verdict == told
    world.take_over()
    assert world.head.verdict == told


def test_a_damaged_verdict_of_0_10_is_refused(tmp_path: Path) -> None:
    kept = {"verdict": "improved", "decision": "promote", "reason": "so"}
    for metrics in (["x"], "x", {"x": 1}, [{"ratio": "x"}]):
        world = _world(tmp_path, schema=3, verdict={**kept, "metrics": metrics})
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


def test_version_0_6_wrote_nothing_down_of_whether_a_quarantined_host_is_out(
    tmp_path: Path,
) -> None:
    head = _world(tmp_path, quarantined={"e002": "gone"}).head
    assert "NOT known to be out of service" in rollout_text(head)
