# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Any
from unittest import mock

from find_orphans import FindOrphans

from edgetune.errors import StoreError
from edgetune.rollout.context import Context
from edgetune.rollout.executions import PAGE
from edgetune.rollout.heartbeat import SILENT, Heartbeat
from edgetune.rollout.steps.rollout_status import rollout_status
from edgetune.rollout.steps.stop_all import stop_all
from edgetune.rollout.steps.take_over_rollout import take_over_rollout
from tests.support.action_case import EdgetuneActionTestCase


class Api:
    """Running executions as StackStorm's API tells them, page by page."""

    def __init__(self) -> None:
        self.running: list[dict[str, Any]] = []
        self.below: dict[str, list[dict[str, Any]]] = {}
        self.ended: list[str] = []
        self.refuses = self.refuses_changes = False

    def begin(
        self, execution: str, action: str, parent: str = "", age: float = 600.0, **given: Any
    ) -> None:
        began = datetime.fromtimestamp(time.time() - age, timezone.utc).isoformat()
        name = (
            "orquesta" if action in ("rollout_pop", "roll_batch", "advance_rollout") else "python"
        )
        row = {
            "id": execution,
            "action": {"ref": action if "." in action else f"edgetune.{action}"},
            "runner": {"name": name if name == "orquesta" else "python-script"},
            "start_timestamp": began.replace("+00:00", "Z"),
            "parameters": given,
        }
        self.running.append({**row, "parent": parent} if parent else row)

    def had(self, parent: str, status: str, age: float) -> None:
        """An execution of a workflow that is not running any more, or not yet."""
        ended = datetime.fromtimestamp(time.time() - age, timezone.utc).isoformat()
        row = {"id": f"{parent}-{status}", "status": status}
        over = status in ("succeeded", "failed")
        self.below.setdefault(parent, []).append({**row, "end_timestamp": ended} if over else row)

    def call(self, method: str, path: str, none: Any = (), **more: Any) -> Any:
        if self.refuses:
            raise StoreError(f"{method} {path}: 403 Client Error: Forbidden")
        if method != "GET" and self.refuses_changes:
            raise StoreError(f"{method} {path}: 403 Client Error: Forbidden")
        if method == "PUT":
            assert more["document"]["status"] == "abandoned"
            self.ended.append(path.rpartition("/")[2])
            return {}
        if method == "DELETE":
            self.ended.append(path.rpartition("/")[2])
            return {}
        if path == "/rules":
            return []
        assert (method, path) == ("GET", "/executions")
        query = more["params"]
        if "parent" in query:
            running = [row for row in self.running if row.get("parent") == query["parent"]]
            rows = [dict(row, status="running") for row in running]
            return [*rows, *self.below.get(query["parent"], [])][: int(query["limit"])]
        assert query["status"] == "running"
        start = int(query["offset"])
        return self.running[start : start + int(query["limit"])]


class FindOrphansTestCase(EdgetuneActionTestCase):
    """``run-1`` carries the rollout of this world on."""

    __test__ = True
    action_cls = FindOrphans

    def setUp(self) -> None:
        super().setUp()
        self.api = Api()
        patched = mock.patch.object(Context, "stackstorm", self.api)
        patched.start()
        self.addCleanup(patched.stop)
        self.held = {"rollout": self.world.rollout, "epoch": self.world.epoch}
        self.api.begin("run-1", "rollout_pop")
        self.api.begin("batch", "roll_batch", "run-1")
        self.quiet_for(SILENT + 5)

    def quiet_for(self, seconds: float) -> None:
        """The claim was renewed so long ago."""
        world = self.world
        claim, ttl = world.context.claims.holder("lab1"), world.context.config.claim_ttl
        world.context.claims.renew("lab1", claim, ttl - seconds)

    def found(self) -> tuple[list[str], list[str]]:
        result = self.assert_succeeds()
        self.assertEqual(result["ended"], self.api.ended)
        return result["ids"], result["ended"]

    def test_nothing_is_an_orphan_while_its_action_works(self) -> None:
        self.api.begin("drain", "drain_hosts", "batch", **self.held)
        self.world.context.heartbeats.beat("drain", Heartbeat(time.time() - SILENT / 2))
        self.assertEqual(self.found(), ([], []))

    def test_an_action_that_just_began_has_given_no_sign_yet(self) -> None:
        self.api.begin("drain", "drain_hosts", "batch", age=SILENT / 2, **self.held)
        self.assertEqual(self.found(), ([], []))

    def test_a_workflow_between_two_actions_is_not_dead(self) -> None:
        self.assertEqual(self.found(), ([], []))

    def test_a_rollout_whose_action_is_dead_is_an_orphan_at_once(self) -> None:
        for last in (None, Heartbeat(time.time() - SILENT - 1)):
            self.api.running = self.api.running[:2]
            self.api.begin("drain", "drain_hosts", "batch", **self.held)
            if last:
                self.world.context.heartbeats.beat("drain", last)
            # Its workflow would roll back if it knew.
            self.assertEqual(self.found(), ([self.world.rollout], []))
        self.assertIn("NO OWNER", rollout_status(Context(self.world.config))["text"])

    def test_a_step_that_was_made_since_is_no_sign_of_death(self) -> None:
        self.api.begin("drain", "drain_hosts", "batch", **self.held)
        self.quiet_for(SILENT - 5)
        self.assertEqual(self.found(), ([], []))

    def test_another_action_of_its_that_works_keeps_it(self) -> None:
        self.api.begin("drain", "drain_hosts", "batch", **self.held)
        self.api.begin("sample", "sample_hosts", "run-1", age=1.0)
        self.assertEqual(self.found(), ([], []))

    def test_its_executions_are_ended_once_it_is_taken_over(self) -> None:
        self.api.begin("drain", "drain_hosts", "batch", **self.held)
        context = Context(self.world.config)
        given = {"owner": "sweep", "unfinished_only": True, "orphaned": True}
        taken = take_over_rollout(context, self.world.rollout, **given)
        self.assertTrue(taken["claimed"])
        self.assertEqual(self.found(), ([], ["drain"]))

    def test_what_holds_no_rollout_is_ended(self) -> None:
        self.api.begin("tick", "sample_running")
        self.api.begin("plan", "plan_rollout", "other")
        self.api.begin("other", "rollout_pop")
        self.assertEqual(self.found(), ([], ["tick", "plan"]))

    def test_a_workflow_that_lost_its_engine_is_ended_once_it_is_taken_over(self) -> None:
        idle = self.world.context.config.owner_timeout
        for age in (idle - 60, idle + 60):
            self.api.running = []
            self.api.begin("run-1", "rollout_pop", age=9e5)
            self.api.begin("batch", "roll_batch", "run-1", age=8e5)
            self.api.below = {}
            self.api.had("run-1", "succeeded", age=8e5)
            self.api.had("batch", "succeeded", age=age)
            self.assertEqual(self.found(), ([], []))
        context = Context(self.world.config)
        take_over_rollout(context, self.world.rollout, owner="sweep", unfinished_only=True)
        self.assertEqual(self.found(), ([], ["run-1"]))

    def test_a_workflow_in_which_something_is_to_come_is_not_lost(self) -> None:
        self.api.begin("tick", "advance_rollout", age=9e5)
        self.assertEqual(self.found(), ([], ["tick"]))
        for status in ("delayed", "requested", "scheduled", "pending", "canceling"):
            self.api.ended, self.api.below = [], {}
            self.api.had("tick", "succeeded", age=9e5)
            self.api.had("tick", status, age=9e5)
            self.assertEqual(self.found(), ([], []))
        self.api.below = {}
        self.api.begin("noop", "core.noop", "tick", age=9e5)
        self.assertEqual(self.found(), ([], []))

    def test_other_packs_are_none_of_ours(self) -> None:
        self.api.begin("theirs", "other.sample_running")
        self.api.begin("noop", "core.noop", "run-1")
        self.assertEqual(self.found(), ([], []))

    def test_all_pages_are_read(self) -> None:
        for number in range(2 * PAGE):
            self.api.begin(f"theirs-{number}", "other.action")
        self.api.begin("tick", "sample_running")
        self.assertEqual(self.found(), ([], ["tick"]))

    def test_where_that_may_not_be_seen_owner_timeout_counts(self) -> None:
        self.api.begin("drain", "drain_hosts", "batch", **self.held)
        self.api.refuses = True
        self.assertEqual(self.found(), ([], []))
        self.quiet_for(self.world.context.config.owner_timeout + 100)
        self.assertEqual(self.found(), ([self.world.rollout], []))

    def test_where_nothing_may_be_ended_rollouts_are_found_all_the_same(self) -> None:
        self.api.begin("drain", "drain_hosts", "batch", **self.held)
        self.api.begin("tick", "sample_running")
        self.api.refuses_changes = True
        self.assertEqual(self.found(), ([self.world.rollout], []))

    def test_nothing_is_recovered_while_everything_is_stopped(self) -> None:
        self.api.begin("drain", "drain_hosts", "batch", **self.held)
        stop_all(self.world.context, reason="a test")
        self.assertEqual(self.found(), ([], []))
