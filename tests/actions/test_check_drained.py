# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from check_drained import CheckDrained

from edgetune.rollout.steps.drain_hosts import begin_drain
from tests.support.action_case import BatchActionTestCase


class CheckDrainedTestCase(BatchActionTestCase):
    __test__ = True
    action_cls = CheckDrained

    def setUp(self) -> None:
        super().setUp()
        self.world.step(begin_drain, 0)
        (self.host,) = self.world.at(0)

    def test_a_host_without_sessions_is_drained(self) -> None:
        result = self.assert_succeeds(**self.of_batch(0))
        self.assertEqual((result["waiting"], result["skipped"]), (0, []))
        self.assertEqual((result["failed"], result["message"]), ([], "drained"))
        self.assertEqual(self.world.at(0), {self.host: "drained"})
        self.assertEqual(self.world.balancer.state[self.host], "maint")
        self.assertEqual(self.world.hosts.not_ready, {self.host})

    def test_a_host_that_cannot_say_that_it_is_not_ready_fails(self) -> None:
        self.world.hosts.errors[self.host, "ready"] = "Read-only file system"
        result = self.assert_fails(**self.of_batch(0))
        self.assertEqual(result["failed"], [self.host])
        self.assertEqual(result["error"], f"{self.host}: Read-only file system")

    def test_a_host_with_sessions_is_waited_for(self) -> None:
        self.world.balancer.sessions[self.host] = 3
        result = self.assert_succeeds(**self.of_batch(0))
        self.assertEqual((result["waiting"], result["skipped"]), (1, []))

    def test_an_overdue_host_is_skipped(self) -> None:
        self.world.balancer.sessions[self.host] = 3
        self.world.age(0)
        self.assertEqual(self.assert_succeeds(**self.of_batch(0))["skipped"], [self.host])
        self.assertEqual(self.world.balancer.state[self.host], "ready")
