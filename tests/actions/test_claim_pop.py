# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from claim_pop import ClaimPop

from edgetune.rollout.record import read_rollout
from tests.support.action_case import EdgetuneActionTestCase


class ClaimPopTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = ClaimPop

    def test_claims_a_free_pop_for_a_plan(self) -> None:
        for state in ("soaking", "rolling_back", "rolled_back"):
            self.world.mark(state)
        result = self.assert_succeeds(plan=self.world.plan.digest)
        self.assertNotEqual(result["rollout"], self.world.rollout)
        self.assertEqual(result["epoch"], self.world.epoch + 1)
        head = read_rollout(self.world.context, result["rollout"]).head
        self.assertEqual((head.state, head.owner, head.by), ("claimed", "", ""))

    def test_who_asks_is_not_given_by_hand(self) -> None:
        parameter = self.metadata["parameters"]["caller"]
        self.assertTrue(parameter["immutable"])
        self.assertIn("action_context.api_user", parameter["default"])

    def test_a_claimed_pop_is_refused(self) -> None:
        says = f"lab1 has a rollout that is changing: {self.world.rollout}"
        self.assert_refused("refused", says, plan=self.world.plan.digest)

    def test_an_unknown_plan_is_named(self) -> None:
        self.assert_refused("refused", "there is no plan sha256:ab", plan="sha256:ab")

    def test_before_the_configuration_it_fails(self) -> None:
        self.world.config = {}
        self.assert_refused("unconfigured", "is not there", plan="sha256:ab")
