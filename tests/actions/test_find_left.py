# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from find_left import FindLeft

from tests.support.action_case import EdgetuneActionTestCase


class FindLeftTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = FindLeft

    def test_names_the_rollout_that_an_execution_left(self) -> None:
        result = self.assert_succeeds(execution="run-1")
        self.assertEqual(result["rollout"], self.world.rollout)
        self.assertIn("was left changing", result["message"])
        self.assertEqual(self.world.head.epoch, self.world.epoch)

    def test_another_execution_left_nothing(self) -> None:
        self.assertEqual(self.assert_succeeds(execution="run-9")["rollout"], "")

    def test_a_rollout_without_an_owner_is_left_by_nobody(self) -> None:
        self.world.take_over(owner="")
        self.assertEqual(self.assert_succeeds(execution="")["rollout"], "")

    def test_what_has_ended_is_not_left(self) -> None:
        for state in ("rolling_back", "rolled_back"):
            self.world.mark(state)
        self.assertEqual(self.assert_succeeds(execution="run-1")["rollout"], "")

    def test_what_a_workflow_left_before_the_configuration_is_nothing(self) -> None:
        self.world.config = {}
        ok, result = self.run_action(execution="run-1")
        self.assertTrue(ok, result)
        self.assert_fits(result)
        self.assertEqual(result["rollout"], "")
        self.assertIn("edgetune.yaml: is not there, or not registered", result["message"])
