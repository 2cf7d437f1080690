# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from resume_all import ResumeAll

from edgetune.rollout.kill_switch import stopped_by
from edgetune.rollout.steps.drain_hosts import drain_hosts
from edgetune.rollout.steps.stop_all import stop_all
from tests.support.action_case import EdgetuneActionTestCase


class ResumeAllTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = ResumeAll

    def test_changes_are_permitted_again(self) -> None:
        stop_all(self.world.context, requested_by="ana", reason="errors")
        result = self.assert_succeeds(requested_by="bo")
        self.assertFalse(result["stopped"])
        message = "bo permits changes again (stopped by ana: errors)"
        self.assertEqual(result["message"], message)
        self.assertEqual(stopped_by(self.world.context), "")
        self.world.step(drain_hosts, 0)
        self.assertNotEqual(self.world.balancer.log, [])

    def test_when_nothing_was_stopped_it_says_so(self) -> None:
        self.assertEqual(self.assert_succeeds()["message"], "nothing was stopped")
