# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from set_rollout_state import SetRolloutState

from edgetune.rollout.record import read_rollout
from tests.support.action_case import EdgetuneActionTestCase


class SetRolloutStateTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = SetRolloutState

    def into(self, state: str, **more: Any) -> dict[str, Any]:
        return {"rollout": self.world.rollout, "epoch": self.world.epoch, "state": state, **more}

    def test_enters_the_next_state_under_a_new_epoch(self) -> None:
        result = self.assert_succeeds(**self.into("soaking"))
        self.assertEqual((result["state"], result["epoch"]), ("soaking", self.world.epoch + 1))
        head = read_rollout(self.world.context, self.world.rollout).head
        self.assertEqual(result["until"], head.soak[1])
        self.assertEqual((head.owner, head.history[-1].by), ("run-1", ""))
        reason = "the test group is changed; both groups are watched"
        self.assertEqual(head.history[-1].reason, reason)

    def test_a_rollout_that_has_ended_gives_its_pop_back(self) -> None:
        for state in ("soaking", "rolling_back"):
            self.world.mark(state)
            self.assertIsNotNone(self.world.context.claims.holder("lab1"))
        ended = self.into("rolled_back")
        self.assertEqual(
            self.assert_succeeds(**ended)["message"].split(";")[0],
            "rolled_back: every host is as it was",
        )
        self.assertIsNone(self.world.context.claims.holder("lab1"))
        self.assert_refused("fenced", "has lost its claim on lab1", **ended)

    def test_a_held_rollout_keeps_its_claim(self) -> None:
        self.world.mark("soaking")
        self.world.mark("held")
        self.assertIsNotNone(self.world.context.claims.holder("lab1"))

    def test_an_unknown_state_is_named(self) -> None:
        self.assert_wrong("state", **self.into("tuned"))

    def test_a_rollback_is_begun_by_another_action(self) -> None:
        self.assert_wrong("state", **self.into("rolling_back"))

    def test_a_state_that_cannot_follow_is_refused(self) -> None:
        self.assert_refused("refused", "it cannot become complete", **self.into("complete"))

    def test_of_two_callers_one_wins(self) -> None:
        both = self.into("soaking")
        self.assert_succeeds(**both)
        self.assert_refused("fenced", "has lost its claim on lab1", **both)
