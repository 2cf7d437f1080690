# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from show_verdict import ShowVerdict

from edgetune.rollout.lease import as_owner
from tests.support.action_case import EdgetuneActionTestCase
from tests.support.builders import concluded


class ShowVerdictTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = ShowVerdict

    def test_before_the_first_look_there_is_none(self) -> None:
        result = self.assert_succeeds(rollout=self.world.rollout)
        self.assertEqual((result["verdict"], result["color"]), ("", ""))
        self.assertTrue(result["message"].endswith("changing, without a verdict"))
        self.assertTrue(result["text"].endswith("No look was taken yet."))

    def test_the_verdict_of_the_record_is_named(self) -> None:
        opened = as_owner(self.world.context, self.world.rollout)
        opened.head.verdict = concluded("roll_back", "degraded")
        opened.save()
        result = self.assert_succeeds(rollout=self.world.rollout)
        self.assertEqual(result["verdict"], "degraded")
        self.assertTrue(result["message"].endswith("changing, degraded"))

    def test_an_unknown_rollout_is_named(self) -> None:
        self.assert_wrong("rollout", rollout="nothing")
