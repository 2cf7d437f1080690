# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from roll_back_congestion import RollBackCongestion

from tests.support.congestion_case import CongestionActionTestCase


class RollBackCongestionTestCase(CongestionActionTestCase):
    __test__ = True
    action_cls = RollBackCongestion

    def test_nothing_is_left_on_any_host(self) -> None:
        result = self.assert_succeeds(pop="lab1", reason="calls", requested_by="ana")
        self.assertEqual(self.world.hosts.treated(), {})
        self.assertIn("nothing is treated any more on 4 of 4 hosts", result["message"])
        self.assertIn("; asked for by ana; reason: calls; ", result["message"])
        self.assertIn("st2 run edgetune.resume_congestion pop=lab1", result["message"])

    def test_a_host_that_is_away_is_named(self) -> None:
        self.world.hosts.mute.add("e001")
        result = self.assert_fails(pop="lab1")
        self.assertEqual(result["failed"], ["e001"])
        self.assertIn("st2 run edgetune.roll_back_congestion pop=lab1", result["error"])
