# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from find_orphans import FindOrphans

from edgetune.base import clock
from edgetune.base.errors import NoAnswerError, StoreError
from edgetune.report.steps.rollout_status import rollout_status
from edgetune.rollout.context import Context
from edgetune.rollout.gates.pause import EXECUTION, pause_for
from edgetune.rollout.ownership.owner import idle_time
from edgetune.rollout.steps.take_over_rollout import take_over_rollout
from edgetune.rollout.store.heartbeat import SILENT, Heartbeat
from edgetune.rollout.store.stackstorm import PAGE
from tests.support.action_case import EdgetuneActionTestCase
from tests.support.scenarios import Scenario, read_scenarios


class Api:
    """Running executions as StackStorm's API tells them, page by page."""

    def __init__(self) -> None:
        self.running: list[dict[str, Any]] = []
        self.below: dict[str, list[dict[str, Any]]] = {}
        self.ended: list[str] = []
        self.others: dict[str, dict[str, Any]] = {}
        self.silent = False
        self.refuses = self.refuses_changes = False

    def begin(
        self, execution: str, action: str, parent: str = "", age: float = 600.0, **given: Any
    ) -> None:
        began = datetime.fromtimestamp(clock.wall() - age, timezone.utc).isoformat()
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
        ended = datetime.fromtimestamp(clock.wall() - age, timezone.utc).isoformat()
        row = {"id": f"{parent}-{status}", "status": status}
        over = status in ("succeeded", "failed")
        self.below.setdefault(parent, []).append({**row, "end_timestamp": ended} if over else row)

    def call(self, method: str, path: str, none: Any = (), **more: Any) -> Any:
        if self.silent:
            raise NoAnswerError(f"{method} {path}: 503 Service Unavailable")
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
        if path != "/executions":
            assert method == "GET" and 404 in none
            return self.others.get(path.rpartition("/")[2])
        query = more["params"]
        if "parent" in query:
            running = [row for row in self.running if row.get("parent") == query["parent"]]
            rows = [dict(row, status="running") for row in running]
            return [*rows, *self.below.get(query["parent"], [])][: int(query["limit"])]
        assert query["status"] == "running"
        start = int(query["offset"])
        return self.running[start : start + int(query["limit"])]


class FindOrphansTestCase(EdgetuneActionTestCase):
    """``run-1`` carries the rollout of this world on; its cases are made of a table below."""

    __test__ = True
    action_cls = FindOrphans

    def setUp(self) -> None:
        super().setUp()
        self.moves = OrphanMoves(self)
        self._replace("stackstorm", self.moves.api)


class OrphanMoves(Scenario):
    """Moves of executions."""

    def __init__(self, case: FindOrphansTestCase) -> None:
        super().__init__(case.world)
        self._case, self.api = case, Api()
        self.api.begin("run-1", "rollout_pop")
        self.api.begin("batch", "roll_batch", "run-1")
        self.quiet(SILENT + 5)

    def quiet(self, seconds: float) -> None:
        """The claim was renewed so long ago."""
        world = self.world
        claim, ttl = world.context.claims.holder("lab1"), world.context.config.claim_ttl
        world.context.claims.renew("lab1", claim, ttl - seconds)

    def begin(self, executions: list[Any]) -> None:
        for name, action, parent, age, holds in executions:
            held = {"rollout": self.world.rollout, "epoch": self.world.epoch} if holds else {}
            self.api.begin(name, action, parent, age, **held)

    def alone(self, _: object) -> None:
        """No execution runs."""
        self.api.running = []

    def had(self, executions: list[Any]) -> None:
        self.api.below, self.api.ended = {}, []
        for parent, status, age in executions:
            self.api.had(parent, status, age)

    def stands(self, executions: dict[str, list[str]]) -> None:
        """The status of executions that do not run, and who paused them."""
        for name, (status, by) in executions.items():
            row = {"id": name, "action": {"ref": "edgetune.rollout_pop"}, "status": status}
            self.api.others[name] = {**row, "context": {"user": "boss", "paused_by": by}}
            self.api.running = [each for each in self.api.running if each["id"] != name]

    def gone(self, execution: str) -> None:
        """StackStorm knows it no more."""
        self.api.others.pop(execution, None)
        self.api.running = [each for each in self.api.running if each["id"] != execution]

    def others(self, pages: int) -> None:
        for number in range(pages * PAGE):
            self.api.begin(f"theirs-{number}", "other.action")

    def beat(self, signs: dict[str, float]) -> None:
        for name, age in signs.items():
            self.world.context.heartbeats.beat(name, Heartbeat(clock.wall() - age))

    def take_over(self, more: dict[str, Any]) -> None:
        """By a context of its own: StackStorm's API is that of the case."""
        context = Context(self.world.config)
        self.result = take_over_rollout(context, self.world.rollout, **more)
        assert self.result["claimed"], self.where

    def refuses(self, error: str) -> None:
        self._case.assert_refused("store", error)

    @property
    def paused(self) -> bool:
        """Whether the sweep wrote down that its execution is paused."""
        own = self._pause()
        return own is not None and own.paused

    @property
    def paused_as(self) -> str:
        return self._pause().reason

    @property
    def paused_at(self) -> float:
        return self._pause().at

    def _pause(self) -> Any:
        return pause_for(self.world.context, "lab1", EXECUTION)

    @property
    def idle(self) -> float:
        """Seconds since a claim was renewed."""
        return idle_time(self.world.context, "lab1")

    def found(self, expected: list[Any]) -> None:
        orphan, ended = expected
        self.result = self._case.assert_succeeds()
        assert self.result["ids"] == ([self.world.rollout] if orphan else []), self.where
        assert self.result["ended"] == self.api.ended == ended, self.where

    @property
    def shown(self) -> str:
        return " ".join(rollout_status(Context(self.world.config))["text"].split())


for _sentence, _moves in read_scenarios(Path(__file__).with_name("find_orphans.yaml")).items():
    setattr(
        FindOrphansTestCase,
        f"test_{_sentence.replace(' ', '_')}",
        lambda self, moves=_moves: self.moves.play(moves),
    )
