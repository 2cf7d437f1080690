# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from check_rebooted import CheckRebooted

from edgetune.rollout.steps.reboot_hosts import reboot_hosts
from tests.support.action_case import BatchActionTestCase


class CheckRebootedTestCase(BatchActionTestCase):
    __test__ = True
    action_cls = CheckRebooted

    def setUp(self) -> None:
        super().setUp()
        self.world.roll(0, until=reboot_hosts)
        self.world.step(reboot_hosts, 0)
        (self.host,) = self.world.at(0)

    def test_waits_until_the_boot_id_is_another(self) -> None:
        self.assertEqual(self.assert_succeeds(**self.of_batch(0))["waiting"], 1)
        self.world.hosts.reboot()
        result = self.assert_succeeds(**self.of_batch(0))
        self.assertEqual((result["waiting"], result["next"]), (0, "check_health"))
        self.assertEqual(self.world.at(0), {self.host: "done"})
        first, *_, last = result["message"].split("; ")
        self.assertEqual((first, last), ("all are back", "1 of 1 serve again"))

    def test_a_host_that_is_back_and_not_as_it_should_be_fails_the_step(self) -> None:
        self.world.hosts.reboot()
        self.world.hosts.tuned.clear()
        result = self.assert_fails(**self.of_batch(0))
        why = f"verify_hosts: {self.host}: not verified: its change is none"
        self.assertEqual(result["error"], why)
        self.assertEqual(self.world.at(0), {self.host: "rebooted"})

    def test_an_overdue_host_fails_the_step(self) -> None:
        self.world.age(0)
        result = self.assert_fails(**self.of_batch(0))
        self.assertEqual((result["waiting"], result["failed"]), (0, [self.host]))
        self.assertEqual(result["error"], f"{self.host}: did not reboot within 1s")
