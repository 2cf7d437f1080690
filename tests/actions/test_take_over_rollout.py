# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from take_over_rollout import TakeOverRollout

from tests.support.action_case import EdgetuneActionTestCase


class TakeOverRolloutTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = TakeOverRollout

    def test_takes_a_rollout_over_under_a_new_epoch(self) -> None:
        result = self.assert_succeeds(rollout=self.world.rollout, owner="run-2")
        self.assertEqual((result["claimed"], result["state"]), (True, "changing"))
        self.assertEqual(result["epoch"], self.world.epoch + 1)
        self.assertEqual(self.world.head.owner, "run-2")

    def test_an_unknown_rollout_is_named(self) -> None:
        self.assert_wrong("rollout", rollout="nothing")

    def test_what_has_ended_is_not_carried_on(self) -> None:
        for state in ("rolling_back", "rolled_back"):
            self.world.mark(state)
        self._is_left_alone("is rolled_back already", unfinished_only=True)

    def test_what_has_an_owner_is_no_orphan(self) -> None:
        self._is_left_alone("has an owner again", orphaned=True)

    def test_what_another_execution_carries_on_is_left_alone(self) -> None:
        self.assert_succeeds(rollout=self.world.rollout, execution="run-1", owner="run-2")
        self._is_left_alone("has an owner again", execution="run-1", owner="run-3")
        self.assertEqual(self.world.head.owner, "run-2")

    def test_an_older_epoch_is_refused(self) -> None:
        self.world.take_over()
        older = self.world.epoch - 1
        ok, result = self.run_action(rollout=self.world.rollout, epoch=older)
        self.assertEqual((ok, result["reason"]), (False, "fenced"))

    def test_it_remembers_whether_its_workflow_stays(self) -> None:
        self.assertFalse(self.assert_succeeds(rollout=self.world.rollout)["wait"])
        self.assertTrue(self.assert_succeeds(rollout=self.world.rollout, wait=True)["wait"])
        self.assertTrue(self.assert_succeeds(rollout=self.world.rollout)["wait"])

    def _is_left_alone(self, why: str, **given: object) -> None:
        epoch = self.world.head.epoch
        ok, result = self.run_action(rollout=self.world.rollout, **given)
        self.assertEqual((ok, result["claimed"]), (True, False))
        self.assert_fits(result)
        self.assertIn(why, result["message"])
        self.assertEqual(self.world.head.epoch, epoch)
