# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from adopt_host import AdoptHost

from edgetune.rollout.record import read_rollout
from tests.support.action_case import EdgetuneActionTestCase


class AdoptHostTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = AdoptHost

    def setUp(self) -> None:
        super().setUp()
        self.world.roll(0)
        (self.host,) = self.world.at(0)
        self.world.mark("soaking")

    def of_host(self, **more: Any) -> dict[str, Any]:
        return {"rollout": self.world.rollout, "host": self.host, **more}

    def test_a_new_machine_serves_and_is_left_alone(self) -> None:
        self.world.hosts.tuned.clear()
        self.world.balancer.state[self.host] = "maint"
        result = self.assert_succeeds(**self.of_host(requested_by="ana"))
        self.assertEqual((result["host"], result["failed"]), (self.host, []))
        self.assertEqual(self.world.at(0), {self.host: "skipped"})
        self.assertEqual(self.world.balancer.state[self.host], "ready")
        entry = read_rollout(self.world.context, self.world.rollout).head.history[-1]
        self.assertEqual(entry.by, "ana")
        self.assertIn(f"{self.host} adopted as it is", entry.reason)

    def test_one_that_does_not_serve_is_quarantined(self) -> None:
        self.world.hosts.tuned.clear()
        self.world.hosts.errors[self.host, "sample"] = "connection refused"
        result = self.assert_fails(**self.of_host())
        self.assertEqual(result["failed"], [self.host])
        self.assertIn("its health check could not be asked: connection refused", result["error"])
        self.assertIn(self.host, self.world.head.quarantined)

    def test_one_that_is_tuned_is_no_new_machine(self) -> None:
        says = f"{self.host} is no new machine: accept_queue is confirmed there"
        self.assert_refused("refused", says, **self.of_host())

    def test_a_workflow_at_work_is_waited_for(self) -> None:
        self.world.hosts.tuned.clear()
        self.world.mark("promoting")
        says = "is promoting; wait until its workflow is through"
        self.assert_refused("refused", says, **self.of_host())

    def test_unknown_hosts_and_rollouts_are_named(self) -> None:
        self.assert_wrong("hosts", **self.of_host(host="e099"))
        self.assert_wrong("rollout", **self.of_host(rollout="nothing"))
