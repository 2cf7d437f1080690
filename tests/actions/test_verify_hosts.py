# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from verify_hosts import VerifyHosts

from edgetune.rollout.steps.verify_hosts import verify_hosts
from tests.support.action_case import BatchActionTestCase


class VerifyHostsTestCase(BatchActionTestCase):
    __test__ = True
    action_cls = VerifyHosts

    def setUp(self) -> None:
        super().setUp()
        self.world.roll(0, until=verify_hosts)
        (self.host,) = self.world.at(0)

    def test_a_changed_host_is_confirmed(self) -> None:
        result = self.assert_succeeds(**self.of_batch(0))
        self.assertFalse(result["hosts"][self.host]["failed"])
        self.assertIn("confirm", self.world.hosts.changing())
        self.assertEqual(self.world.at(0), {self.host: "done"})
        self.assertEqual(result["next"], "check_health")

    def test_a_host_that_does_not_pass_the_load_balancer_fails_the_step(self) -> None:
        self.world.balancer.up[self.host] = False
        result = self.assert_fails(**self.of_batch(0))
        self.assertEqual(result["failed"], [self.host])
        why = f"undrain_hosts: {self.host}: does not pass the load balancer's check"
        self.assertEqual(result["error"], why)

    def test_a_host_that_lost_its_change_fails_the_step(self) -> None:
        self.world.hosts.tuned.clear()
        result = self.assert_fails(**self.of_batch(0))
        self.assertEqual(result["failed"], [self.host])
        self.assertEqual(result["error"], f"{self.host}: not verified: its change is none")
