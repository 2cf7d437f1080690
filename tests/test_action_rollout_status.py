# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from rollout_status import RolloutStatus

from edgetune.rollout.claims import Claim
from tests.action_case import EdgetuneActionTestCase


class RolloutStatusTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = RolloutStatus

    def test_says_how_every_rollout_stands(self) -> None:
        result = self.assert_succeeds()
        self.assertEqual(result["ids"], [self.world.rollout])
        self.assertEqual(result["message"], "1 rollout")
        (row,) = result["rollouts"]
        self.assertEqual((row["pop"], row["tuning"]), ("lab1", "accept_queue"))
        self.assertEqual((row["state"], row["quarantined"]), ("changing", {}))

    def test_one_rollout_and_those_in_a_state(self) -> None:
        for given in ({"rollout": self.world.rollout}, {"pop": "lab1"}, {"state": "changing"}):
            self.assertEqual(self.assert_succeeds(**given)["ids"], [self.world.rollout])
        result = self.assert_succeeds(state="held")
        self.assertEqual((result["ids"], result["text"]), ([], "No rollouts."))

    def test_those_with_a_host_in_quarantine_and_those_without_an_owner(self) -> None:
        for given in ({"host": "e003"}, {"orphaned": True}):
            self.assertEqual(self.assert_succeeds(**given)["ids"], [])
        claim = Claim(self.world.rollout, self.world.epoch)
        self.world.site.claims.release("lab1", claim)
        self.assertEqual(self.assert_succeeds(orphaned=True)["ids"], [self.world.rollout])

    def test_wrong_parameters_are_named(self) -> None:
        for field, value in (("rollout", "nothing"), ("pop", "nowhere"), ("state", "tuned")):
            with self.subTest(field):
                self.assert_wrong(field, **{field: value})
