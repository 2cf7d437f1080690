# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from push_configuration import PushConfiguration

from edgetune.rounds.steps.select_prefixes import select_prefixes
from tests.support.congestion_case import CongestionActionTestCase


class PushConfigurationTestCase(CongestionActionTestCase):
    __test__ = True
    action_cls = PushConfiguration

    def test_a_round_that_is_under_way_is_told(self) -> None:
        self.world.clock.wait(300)
        select_prefixes(self.world.context, "lab1")
        result = self.assert_succeeds(pop="lab1")
        self.assertEqual(result["done"], ["e002", "e000", "e001", "e003"])
        message = self.assert_succeeds(pop="lab1")["message"]
        self.assertEqual(message, "lab1: no round is under way, so hosts are told nothing")
