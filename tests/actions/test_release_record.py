# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from release_record import ReleaseRecord

from tests.support.action_case import EdgetuneActionTestCase


class ReleaseRecordTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = ReleaseRecord

    def test_a_record_that_cannot_be_read_is_given_up(self) -> None:
        self.world.context.store.put(f"edgetune.rollout.{self.world.rollout}", "{")
        result = self.assert_succeeds(rollout=self.world.rollout, requested_by="ana")
        self.assertEqual(result["pop"], "lab1")
        self.assertIn("is no JSON", result["why"])
        self.assertIn("ana gives up the record of", result["message"])

    def test_one_that_can_be_read_is_not(self) -> None:
        self.assert_refused("refused", "can be read", rollout=self.world.rollout)

    def test_an_unknown_rollout_is_named(self) -> None:
        self.assert_wrong("rollout", rollout="nothing")
