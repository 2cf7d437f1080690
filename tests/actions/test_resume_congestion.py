# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from resume_congestion import ResumeCongestion

from edgetune.rounds.steps.roll_back_congestion import roll_back_congestion
from tests.support.congestion_case import CongestionActionTestCase


class ResumeCongestionTestCase(CongestionActionTestCase):
    __test__ = True
    action_cls = ResumeCongestion

    def test_rounds_go_on(self) -> None:
        roll_back_congestion(self.world.context, "lab1", "calls", "ana")
        result = self.assert_succeeds(pop="lab1", requested_by="bea")
        self.assertEqual((result["changed"], self.world.decided.state), (True, "tuning"))
        self.assertEqual(result["message"], "lab1 is tuned again, as bea says; it was: calls")

    def test_somebody_decides_it(self) -> None:
        roll_back_congestion(self.world.context, "lab1", "calls", "ana")
        self.assert_wrong("requested_by", pop="lab1")
        self.assertEqual(self.world.decided.state, "rolled_back")
