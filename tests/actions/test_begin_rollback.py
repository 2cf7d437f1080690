# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from begin_rollback import BeginRollback

from tests.support.action_case import EdgetuneActionTestCase


class BeginRollbackTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = BeginRollback

    def given(self, **more: Any) -> dict[str, Any]:
        return {"rollout": self.world.rollout, "epoch": self.world.epoch, **more}

    def test_says_which_batches_it_has(self) -> None:
        self.world.roll(0)
        result = self.assert_succeeds(**self.given(requested_by="ana", reason="too slow"))
        self.assertEqual(result["end_batch"] - result["first_batch"], 1)
        self.assertEqual(result["message"], "rolling_back: too slow")
        self.assertEqual(result["epoch"], self.world.epoch + 1)

    def test_of_two_callers_one_wins(self) -> None:
        both = self.given()
        self.assert_succeeds(**both)
        self.assert_refused("fenced", "has lost its claim on lab1", **both)

    def test_an_unknown_rollout_is_named(self) -> None:
        self.assert_wrong("rollout", **{**self.given(), "rollout": "nothing"})

    def test_single_hosts_are_refused_before_all_are_back(self) -> None:
        (host,) = self.world.at(0)
        says = "single hosts are visited only once it is rolled_back"
        self.assert_refused("refused", says, **self.given(hosts=[host]))
