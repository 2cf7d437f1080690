# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

from hold_campaign import HoldCampaign

from tests.support.action_case import EdgetuneActionTestCase
from tests.support.campaign_world import CampaignWorld


class HoldCampaignTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = HoldCampaign
    world: CampaignWorld

    def make_world(self, folder: Path) -> CampaignWorld:
        world = CampaignWorld(folder)
        world.begin_campaign()
        return world

    def test_begins_nothing_more(self) -> None:
        self.world.advance()
        rollout = self.world.record.pops["ams1"].rollout
        result = self.assert_succeeds(campaign=self.world.id, reason="a storm", requested_by="ben")
        self.assertEqual((result["state"], result["under_way"]), ("held", [rollout]))
        said = f"{self.world.id} is held; under way all the same: {rollout}"
        self.assertEqual(result["message"], said)
        entry = self.world.record.history[-1]
        self.assertEqual((entry.what, entry.by), ("held: a storm", "ben"))
        self.assertEqual(self.world.advance(), [])

    def test_an_unknown_campaign_is_named(self) -> None:
        self.assert_wrong("campaign", campaign="nothing")
