# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

from step_campaign import StepCampaign

from edgetune.rollout.record import read_rollout
from tests.support.action_case import EdgetuneActionTestCase
from tests.support.campaign_world import CampaignWorld


class StepCampaignTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = StepCampaign
    world: CampaignWorld

    def make_world(self, folder: Path) -> CampaignWorld:
        world = CampaignWorld(folder)
        world.begin_campaign()
        return world

    def test_begins_a_rollout_and_does_so_once(self) -> None:
        result = self.assert_succeeds(campaign=self.world.id, owner="run-1", requested_by="cron")
        (begun,) = result["start"]
        head = read_rollout(self.world.context, begun["rollout"]).head
        self.assertEqual((head.pop, head.epoch, head.owner), ("ams1", begun["epoch"], "run-1"))
        message = f"{self.world.id}: ring canary: ams1 begun"
        self.assertEqual((result["errors"], result["message"]), ([], message))
        again = self.assert_succeeds()
        self.assertEqual(again["start"], [])
        self.assertEqual(again["message"], f"{self.world.id}: ring canary: ams1 claimed")

    def test_an_unknown_campaign_is_named(self) -> None:
        self.assert_wrong("campaign", campaign="nothing")
