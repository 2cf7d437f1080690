# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

from resume_campaign import ResumeCampaign

from edgetune.campaign.control import hold_campaign
from tests.support.action_case import EdgetuneActionTestCase
from tests.support.campaign_world import CampaignWorld


class ResumeCampaignTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = ResumeCampaign
    world: CampaignWorld

    def make_world(self, folder: Path) -> CampaignWorld:
        world = CampaignWorld(folder)
        world.begin_campaign()
        return world

    def test_goes_on(self) -> None:
        hold_campaign(self.world.context, self.world.id, requested_by="ben")
        self.assertEqual(self.world.advance(), [])
        result = self.assert_succeeds(campaign=self.world.id, requested_by="ana")
        self.assertEqual((result["state"], result["under_way"]), ("running", []))
        self.assertEqual(self.world.last, "running: resumed")
        self.assertEqual(self.world.advance(), ["ams1"])

    def test_accepting_needs_a_name(self) -> None:
        self.assert_wrong("requested_by", campaign=self.world.id, accept=True)

    def test_nobody_gives_another_name_than_his_own(self) -> None:
        self.assertTrue(self.metadata["parameters"]["requested_by"]["immutable"])

    def test_an_unknown_campaign_is_named(self) -> None:
        self.assert_wrong("campaign", campaign="nothing")
