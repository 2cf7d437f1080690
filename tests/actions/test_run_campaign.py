# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

from run_campaign import RunCampaign

from edgetune.campaign.control import abort_campaign
from tests.support.action_case import EdgetuneActionTestCase
from tests.support.campaign_world import CampaignWorld


class RunCampaignTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = RunCampaign
    world: CampaignWorld

    def make_world(self, folder: Path) -> CampaignWorld:
        world = CampaignWorld(folder)
        world.begin_campaign()
        return world

    def test_is_a_dry_run_unless_told_otherwise(self) -> None:
        result = self.assert_succeeds(campaign="queue")
        self.assertEqual((result["campaign"], result["tuning"]), ("", "accept_queue"))
        self.assertEqual(result["refused"], 0)
        self.assertIn("Campaign queue: accept_queue", result["text"])
        self.assertIn("  3 fleet: 10m baseline, 2h soak; 1 at once; ", result["text"])

    def test_begins(self) -> None:
        abort_campaign(self.world.context, self.world.id, requested_by="ben")
        result = self.assert_succeeds(campaign="queue", dry_run=False, requested_by="ana")
        self.world.id = result["campaign"]
        self.assertEqual(result["message"].partition(": ")[2][:19], "4 PoPs in 3 rings; ")
        self.assertEqual((self.world.record.state, self.world.record.by), ("running", "ana"))
        self.assertEqual(self.world.begun(), [])

    def test_a_pop_of_another_campaign_is_refused(self) -> None:
        says = f"ams1, ams2, fra1, lax1: in campaign {self.world.id}, which is running"
        self.assert_refused("refused", says, campaign="queue", dry_run=False, requested_by="ana")

    def test_nobody_gives_another_name_than_his_own(self) -> None:
        self.assertTrue(self.metadata["parameters"]["requested_by"]["immutable"])

    def test_an_unknown_campaign_is_named(self) -> None:
        self.assert_wrong("campaign", campaign="nothing")
