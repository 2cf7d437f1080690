# SPDX-License-Identifier: Apache-2.0
"""What retire_tuning takes back; its other step, roll_back_pop, has its own tests."""

from __future__ import annotations

from list_applied import ListApplied

from tests.support.action_case import EdgetuneActionTestCase


class ListAppliedTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = ListApplied

    def complete(self) -> None:
        for state in ("soaking", "promoting", "complete"):
            self.world.mark(state)

    def test_finds_what_is_complete(self) -> None:
        self.complete()
        result = self.assert_succeeds(pop="lab1", tuning="accept_queue")
        self.assertEqual(result["rollouts"], [self.world.rollout])
        self.assertEqual(result["message"], f"accept_queue stands on lab1 by {self.world.rollout}")

    def test_says_when_none_stands(self) -> None:
        self.complete()
        result = self.assert_succeeds(pop="lab1", tuning="nic_ring")
        self.assertEqual(result["rollouts"], [])
        self.assertEqual(
            result["message"], "nic_ring does not stand on lab1; there are: accept_queue"
        )
        for state in ("rolling_back", "rolled_back"):
            self.world.mark(state)
        result = self.assert_succeeds(pop="lab1", tuning="accept_queue")
        self.assertEqual(result["rollouts"], [])
        self.assertIn("there are: none", result["message"])

    def test_says_which_rollout_is_under_way(self) -> None:
        result = self.assert_succeeds(pop="lab1", tuning="accept_queue")
        self.assertEqual(result["rollouts"], [])
        self.assertEqual(
            result["message"], f"lab1 has a rollout that is changing: {self.world.rollout}"
        )

    def test_no_name_is_not_every_tuning(self) -> None:
        self.complete()
        self.assert_wrong("tuning", pop="lab1", tuning="")
        self.assert_wrong("tuning", pop="lab1")
        result = self.assert_succeeds(pop="lab1", every=True)
        self.assertEqual(result["rollouts"], [self.world.rollout])

    def test_an_unknown_pop_is_named(self) -> None:
        self.assert_wrong("pop", pop="nowhere", tuning="accept_queue")
