# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

from campaign_status import CampaignStatus

from tests.support.action_case import EdgetuneActionTestCase
from tests.support.campaign_world import CampaignWorld


class CampaignStatusTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = CampaignStatus
    world: CampaignWorld

    def make_world(self, folder: Path) -> CampaignWorld:
        world = CampaignWorld(folder)
        world.begin_campaign()
        return world

    def test_says_how_it_stands(self) -> None:
        self.world.advance()
        result = self.assert_succeeds()
        (campaign,) = result["campaigns"]
        self.assertEqual((campaign["state"], campaign["ring"]), ("running", "canary"))
        self.assertEqual(campaign["rings"][0]["states"], {"ams1": "claimed"})
        self.assertEqual(result["message"], "1 campaign")
        rollout = self.world.record.pops["ams1"].rollout
        self.assertIn(f"      ams1  claimed  {rollout}", result["text"])
        self.assertIn("  2 early: later, digest sha256:", result["text"])
        self.assertIn(f"ams1 begins: rollout {rollout} (cron) [run-1]", result["text"])
        self.assertEqual(self.assert_succeeds(campaign=self.world.id), result)

    def test_an_unknown_campaign_is_named(self) -> None:
        self.assert_wrong("campaign", campaign="nothing")
