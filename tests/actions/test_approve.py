# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from pathlib import Path

from approve import Approve

from edgetune.rollout.heads import all_heads
from tests.support.action_case import EdgetuneActionTestCase
from tests.support.campaign_world import CampaignWorld


class ApproveTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = Approve
    world: CampaignWorld

    def make_world(self, folder: Path) -> CampaignWorld:
        world = CampaignWorld(folder, gates={"approval": {"required": True}})
        world.begin_campaign()
        return world

    @property
    def digest(self) -> str:
        return self.world.record.rings[0].digest

    def test_lets_a_ring_begin(self) -> None:
        self.assertEqual(self.world.advance(), [])
        result = self.assert_succeeds(digest=self.digest, requested_by="ben", reason="asked")
        of = f"ring canary of {self.world.id}"
        self.assertEqual((result["digest"], result["of"]), (self.digest, of))
        self.assertTrue(result["message"].startswith(f"{of} is approved by ben until 20"))
        compared = "compared: approved by ben, asked by ana"
        self.assertEqual((result["asked_by"], result["compared"]), ("ana", compared))
        self.assertEqual(self.world.advance(), ["ams1"])
        (head,) = all_heads(self.world.context)
        assert head.approved
        self.assertEqual((head.approved.by, head.approved.reason), ("ben", "asked"))
        self.assertLess(abs(time.time() - head.approved.at), 60)

    def test_nobody_gives_another_name_than_his_own(self) -> None:
        self.assertTrue(self.metadata["parameters"]["requested_by"]["immutable"])

    def test_who_asked_is_refused(self) -> None:
        for name in ("ana", "@ana", "<@ana>", "Ana@corp", "<@U012AB|ana>"):
            self.assert_refused(
                "refused", "ana asked for it", digest=self.digest, requested_by=name
            )

    def test_an_account_that_may_be_of_who_asked_is_refused(self) -> None:
        for account in ("U012AB", "<@U012AB>"):
            why = f"{account} and ana cannot be compared"
            self.assert_refused("refused", why, digest=self.digest, requested_by=account)

    def test_an_unknown_digest_is_named(self) -> None:
        self.assert_wrong("digest", digest="sha256:0", requested_by="ben")
