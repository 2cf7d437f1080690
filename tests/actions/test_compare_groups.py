# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time

from compare_groups import CompareGroups

from edgetune.rollout.lease import as_owner
from tests.support.action_case import EdgetuneActionTestCase


class CompareGroupsTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = CompareGroups

    def test_waits_until_the_soak_is_over(self) -> None:
        self.world.mark("soaking")
        result = self.assert_succeeds(rollout=self.world.rollout)
        self.assertEqual((result["decision"], result["verdict"]), ("wait", ""))
        self.assertEqual(result["epoch"], self.world.epoch)

    def test_a_soak_without_samples_holds(self) -> None:
        self.world.mark("soaking")
        opened = as_owner(self.world.context, self.world.rollout)
        opened.head.soak = [time.time() - 1000, time.time() - 1]
        opened.save()
        result = self.assert_succeeds(rollout=self.world.rollout)
        self.assertEqual((result["decision"], result["verdict"]), ("hold", "inconclusive"))

    def test_a_rollout_that_does_not_soak_decides_nothing(self) -> None:
        result = self.assert_succeeds(rollout=self.world.rollout)
        self.assertEqual(result["decision"], "none")
        self.assertEqual(result["message"], f"{self.world.rollout} is changing")

    def test_an_unknown_rollout_is_named(self) -> None:
        self.assert_wrong("rollout", rollout="nothing")
