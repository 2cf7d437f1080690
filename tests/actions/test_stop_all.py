# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from stop_all import StopAll

from edgetune.errors import RefusedError
from edgetune.rollout.steps.drain_hosts import drain_hosts
from edgetune.rollout.steps.rollout_status import rollout_status
from tests.support.action_case import EdgetuneActionTestCase


class StopAllTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = StopAll

    def test_nothing_is_changed_any_more_and_status_says_why(self) -> None:
        result = self.assert_succeeds(requested_by="ana", reason="errors everywhere")
        why, permits = "stopped by ana: errors everywhere", "st2 run edgetune.resume_all"
        self.assertTrue(result["stopped"])
        self.assertEqual(result["message"], f"{why}; hosts stay as they are until {permits}")
        with pytest.raises(RefusedError, match=f"everything is stopped .*{why}"):
            self.world.step(drain_hosts, 0)
        self.assertEqual((self.world.hosts.changing(), self.world.balancer.log), ([], []))
        text = rollout_status(self.world.context)["text"]
        self.assertTrue(text.startswith(f"EVERYTHING IS STOPPED: {why}\n"), text)
        self.assertIn(f"  resume:     {permits}\n", text)

    def test_a_reason_is_not_needed(self) -> None:
        message = self.assert_succeeds()["message"]
        self.assertTrue(message.startswith("stopped by unknown; "), message)
