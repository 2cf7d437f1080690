# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from check_health import CheckHealth

from tests.support.action_case import BatchActionTestCase


class CheckHealthTestCase(BatchActionTestCase):
    __test__ = True
    action_cls = CheckHealth

    def setUp(self) -> None:
        super().setUp()
        self.world.roll(0)
        (self.host,) = self.world.at(0)

    def test_changed_hosts_within_their_limits(self) -> None:
        result = self.assert_succeeds(**self.of_batch(0))
        told = f"batch 1 of 4: {self.host} changed and back in service, within limits"
        self.assertEqual(result["message"], told)
        self.assertEqual((result["failed"], result["remaining"]), ([], 0))

    def test_a_changed_host_that_does_not_answer_fails_the_step(self) -> None:
        self.world.hosts.errors[self.host, "sample"] = "timed out"
        result = self.assert_fails(**self.of_batch(0))
        self.assertEqual(result["failed"], [self.host])
        self.assertEqual(result["error"], f"{self.host}: does not answer")
