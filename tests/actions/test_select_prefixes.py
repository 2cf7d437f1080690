# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from select_prefixes import SelectPrefixes

from edgetune.rollout.steps.stop_all import stop_all
from tests.support.congestion_case import CongestionActionTestCase
from tests.support.rounds_world import QUICK


class SelectPrefixesTestCase(CongestionActionTestCase):
    __test__ = True
    action_cls = SelectPrefixes

    def test_what_was_selected_is_told_to_hosts_in_the_same_task(self) -> None:
        self.world.clock.wait(300)
        result = self.assert_succeeds(pop="lab1")
        self.assertEqual(result["done"], ["e002", "e000", "e001", "e003"])
        self.assertEqual((result["next"], result["number"], result["failed"]), ("", 1, []))
        self.assertIn(
            "lab1: round 5880005: 40 prefixes measured, 20 prefixes chosen", result["message"]
        )

    def test_a_source_that_is_away_is_told_and_no_failure(self) -> None:
        self.world.clock.wait(300)
        self.world.sockets.away = "lab1: ClickHouse at http://ch: {{ 7 * 7 }} <% 1 %>"
        result = self.assert_succeeds(pop="lab1")
        self.assertIn("ClickHouse at http://ch: { { 7", result["message"])
        self.assertEqual(len(result["done"]), 4)

    def test_a_canary_that_does_not_take_it_fails_the_round(self) -> None:
        self.world.hosts.refusing["e002"] = "bpftune (process 7) chooses here"
        self.world.write_entry({"thresholds": QUICK, "canary": "e002", "algorithm": "cubic"})
        result = self.assert_fails(pop="lab1")
        self.assertEqual(result["failed"], ["e002"])
        self.assertIn("bpftune (process 7) chooses here", result["error"])

    def test_a_stop_is_read_before_anything(self) -> None:
        stop_all(self.world.context, "ana")
        self.world.hosts.heard.clear()
        self.assert_refused("refused", "everything is stopped", pop="lab1")
        self.assertEqual(self.world.hosts.heard, [])
