# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from claim_pop import ClaimPop

from edgetune.rollout.record import read_rollout
from edgetune.rollout.steps.release_claim import release_claim
from tests.action_case import EdgetuneActionTestCase


class ClaimPopTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = ClaimPop

    def test_claims_a_free_pop_for_a_plan(self) -> None:
        for state in ("soaking", "rolling_back", "rolled_back"):
            self.world.mark(state)
        release_claim(self.world.site, self.world.rollout, self.world.epoch)
        result = self.assert_succeeds(plan=self.world.plan.digest)
        self.assertNotEqual(result["rollout"], self.world.rollout)
        self.assertEqual((result["claimed"], result["state"]), (True, "claimed"))
        self.assertEqual(result["epoch"], self.world.epoch + 1)
        head = read_rollout(self.world.site, result["rollout"]).head
        self.assertEqual((head.owner, head.by), ("", ""))

    def test_who_asks_is_not_given_by_hand(self) -> None:
        parameter = self.metadata["parameters"]["asked_by"]
        self.assertTrue(parameter["immutable"])
        self.assertIn("action_context.api_user", parameter["default"])

    def test_takes_over_what_an_execution_left(self) -> None:
        result = self.assert_succeeds(left_by="run-1", owner="run-2")
        self.assertEqual(result["rollout"], self.world.rollout)
        self.assertEqual(result["epoch"], self.world.epoch + 1)

    def test_without_anything_left_it_claims_nothing(self) -> None:
        for given in ({}, {"left_by": "run-9"}):
            ok, result = self.run_action(**given)
            self.assertTrue(ok)
            self.assert_fits(result)
            self.assertFalse(result["claimed"])

    def test_an_unknown_rollout_is_named(self) -> None:
        self.assert_wrong("rollout", rollout="nothing")

    def test_a_claimed_pop_is_refused(self) -> None:
        says = f"lab1 has a rollout that is changing: {self.world.rollout}"
        self.assert_refused("refused", says, plan=self.world.plan.digest)

    def test_what_has_ended_is_not_carried_on(self) -> None:
        for state in ("rolling_back", "rolled_back"):
            self.world.mark(state)
        ok, result = self.run_action(rollout=self.world.rollout, carry_on=True)
        self.assertEqual((ok, result["claimed"]), (True, False))
        self.assertIn("is rolled_back already", result["message"])

    def test_it_remembers_whether_its_workflow_stays(self) -> None:
        self.assertFalse(self.assert_succeeds(rollout=self.world.rollout)["wait"])
        self.assertTrue(self.assert_succeeds(rollout=self.world.rollout, wait=True)["wait"])
        self.assertTrue(self.assert_succeeds(rollout=self.world.rollout)["wait"])

    def test_what_a_workflow_left_before_the_configuration_is_nothing(self) -> None:
        self.world.config = {}
        ok, result = self.run_action(left_by="run-1")
        self.assertTrue(ok, result)
        self.assert_fits(result)
        self.assertFalse(result["claimed"])
        self.assertIn("edgetune.yaml: is not there, or not registered", result["message"])
        self.assert_refused("unconfigured", "is not there", plan="sha256:ab")
