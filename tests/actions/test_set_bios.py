# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

from set_bios import SetBios

from edgetune.rollout.steps.set_bios import set_bios
from tests.support.action_case import BatchActionTestCase
from tests.support.bmcs import EARLY, HOME
from tests.support.world import BiosWorld


class SetBiosTestCase(BatchActionTestCase):
    __test__ = True
    action_cls = SetBios

    def make_world(self, folder: Path) -> BiosWorld:
        made = BiosWorld(folder)
        made.enter()
        made.roll(0, until=set_bios)
        (self.host,) = made.at(0)
        return made

    def test_sets_what_the_next_boot_brings(self) -> None:
        result = self.assert_succeeds(**self.of_batch(0))
        self.assertEqual((result["waiting"], result["next"]), (0, "apply_tuning"))
        self.assertEqual(result["message"], f"BIOS set on {self.host}")
        self.assertEqual(self.world.bmcs.mode(self.host), (EARLY, HOME))

    def test_a_second_call_sends_nothing(self) -> None:
        self.assert_succeeds(**self.of_batch(0))
        result = self.assert_succeeds(**self.of_batch(0))
        self.assertEqual(result["message"], "BIOS set on no host")
        self.assertEqual(len(self.world.bmcs.sent), 1)

    def test_a_bmc_that_is_busy_is_waited_for(self) -> None:
        self.world.bmcs.faults[self.host] = {"busy"}
        result = self.assert_succeeds(**self.of_batch(0))
        self.assertEqual(result["waiting"], 1)
        self.assertEqual(result["message"], f"{self.host}: the machine is in POST")

    def test_what_somebody_else_left_pending_fails_the_step(self) -> None:
        self.world.bmcs.pending[self.host] = {"BootMode": "Bios"}
        result = self.assert_fails(**self.of_batch(0))
        self.assertEqual(result["failed"], [self.host])
        self.assertIn("BootMode (Uefi -> Bios)", result["error"])

    def test_a_control_host_is_only_looked_at(self) -> None:
        self.world.roll(1, until=set_bios)
        (host,) = self.world.at(1)
        result = self.assert_succeeds(**self.of_batch(1))
        self.assertEqual(result["message"], f"nothing is pending in the BIOS on {host}")
        self.assertEqual(self.world.bmcs.sent, [])

    def test_a_rollback_cancels_what_waits_for_a_boot(self) -> None:
        self.assert_succeeds(**self.of_batch(0))
        back = self.world.mark("rolling_back")["first_batch"]
        self.world.roll(back, until=set_bios)
        result = self.assert_succeeds(**self.of_batch(back))
        self.assertEqual(result["message"], f"BIOS taken back on {self.host}")
        self.assertEqual(result["next"], "restore_hosts")
        self.assertEqual(self.world.bmcs.mode(self.host), (EARLY, None))
        self.assertFalse(any(host.reboot for host in self.world.batch(back).hosts.values()))
