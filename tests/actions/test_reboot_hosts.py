# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from reboot_hosts import RebootHosts

from edgetune.rollout.steps.reboot_hosts import reboot_hosts
from tests.support.action_case import BatchActionTestCase


class RebootHostsTestCase(BatchActionTestCase):
    __test__ = True
    action_cls = RebootHosts

    def setUp(self) -> None:
        super().setUp()
        self.world.roll(0, until=reboot_hosts)
        (self.host,) = self.world.at(0)

    def test_reboots_a_changed_host_once(self) -> None:
        result = self.assert_succeeds(**self.of_batch(0))
        message = f"rebooting {self.host}"
        expected = {"failed": [], "error": "", "retry_after": 2, "message": message}
        expected["next"] = "check_rebooted"
        self.assertEqual(result, expected)
        self.assert_succeeds(**self.of_batch(0))
        sent = [(name, ask) for name, verb, ask in self.world.hosts.asked if verb == "reboot"]
        # Asked for the boot of before, a host that has rebooted does not do it again.
        boot = f"{self.host}-boot-1"
        once = (self.host, {"epoch": self.world.epoch, "boot_id": boot, "drained": True})
        self.assertEqual(sent, [once, once])
        self.world.hosts.reboot()
        self.assert_succeeds(**self.of_batch(0))
        self.world.hosts.reboot()
        self.assertEqual(self.world.hosts.reboots(self.host), 1)

    def test_a_host_whose_boot_id_is_unknown_is_not_rebooted(self) -> None:
        self.world.hosts.errors[self.host, "facts"] = "timed out"
        result = self.assert_fails(**self.of_batch(0))
        self.assertEqual(
            (result["failed"], result["error"]), ([self.host], f"{self.host}: timed out")
        )
        self.assertNotIn("reboot", self.world.hosts.changing())
