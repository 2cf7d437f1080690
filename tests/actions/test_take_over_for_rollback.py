# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from take_over_for_rollback import TakeOverForRollback

from tests.support.action_case import EdgetuneActionTestCase


class TakeOverForRollbackTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = TakeOverForRollback

    def test_takes_the_rollout_over_and_says_which_batches_it_has(self) -> None:
        self.world.roll(0)
        result = self.assert_succeeds(rollout=self.world.rollout, owner="run-2", requested_by="ana")
        self.assertEqual((result["entered"], result["epoch"]), (True, self.world.epoch + 2))
        self.assertEqual(result["end_batch"] - result["first_batch"], 1)
        head = self.world.head
        self.assertEqual((head.state, head.owner, head.last_by), ("rolling_back", "run-2", "ana"))

    def test_where_all_is_back_nothing_is_entered(self) -> None:
        for state in ("rolling_back", "rolled_back"):
            self.world.mark(state)
        ok, result = self.run_action(rollout=self.world.rollout)
        self.assertEqual((ok, result["entered"]), (True, False))
        self.assert_fits(result)
        self.assertIn("is rolled_back already", result["message"])

    def test_an_unknown_rollout_is_named(self) -> None:
        self.assert_wrong("rollout", rollout="nothing")

    def test_single_hosts_are_refused_before_all_are_back(self) -> None:
        (host,) = self.world.at(0)
        says = "single hosts are visited only once it is rolled_back"
        self.assert_refused("refused", says, rollout=self.world.rollout, hosts=[host])
