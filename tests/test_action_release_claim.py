# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from release_claim import ReleaseClaim

from tests.action_case import EdgetuneActionTestCase


class ReleaseClaimTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = ReleaseClaim

    def present(self) -> dict[str, Any]:
        return {"rollout": self.world.rollout, "epoch": self.world.epoch}

    def test_gives_the_pop_back_once(self) -> None:
        for state in ("soaking", "rolling_back", "rolled_back"):
            self.world.mark(state)
        result = self.assert_succeeds(**self.present())
        self.assertEqual(result, {"released": True, "message": "lab1 is free"})
        self.assertIsNone(self.world.context.claims.holder("lab1"))
        self.assertFalse(self.assert_succeeds(**self.present())["released"])

    def test_a_rollout_under_way_keeps_its_claim(self) -> None:
        self.assert_refused("refused", "is changing; it keeps its claim", **self.present())
        self.assertIsNotNone(self.world.context.claims.holder("lab1"))

    def test_an_unknown_rollout_is_named(self) -> None:
        self.assert_wrong("rollout", **{**self.present(), "rollout": "nothing"})
