# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from restore_hosts import RestoreHosts

from edgetune.rollout.steps.restore_hosts import restore_hosts
from tests.support.action_case import BatchActionTestCase


class RestoreHostsTestCase(BatchActionTestCase):
    __test__ = True
    action_cls = RestoreHosts

    def setUp(self) -> None:
        super().setUp()
        self.world.roll(0)
        (self.host,) = self.world.at(0)
        self.back = self.world.mark("rolling_back")["first_batch"]
        self.world.roll(self.back, until=restore_hosts)

    def test_takes_the_tuning_back(self) -> None:
        result = self.assert_succeeds(**self.of_batch(self.back))
        self.assertTrue(result["hosts"][self.host]["changed"])
        self.assertEqual(self.world.hosts.tuned, set())
        self.assertEqual((result["next"], result["retry_after"]), ("check_rebooted", 2))
        self.assertEqual(self.world.at(self.back), {self.host: "rebooting"})

    def test_a_host_that_cannot_be_restored_is_named_and_the_rollback_goes_on(self) -> None:
        self.world.hosts.errors[self.host, "restore"] = "Read-only file system"
        result = self.assert_succeeds(**self.of_batch(self.back))
        self.assertEqual(result["error"], f"{self.host}: Read-only file system")
        self.assertEqual(self.world.at(self.back), {self.host: "quarantined"})
