# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from report_campaign import ReportCampaign

from edgetune.base.documents.look import Look
from edgetune.base.documents.words import Decision, Verdict
from edgetune.base.sanitize import one_line
from edgetune.fleet.campaign.record import seized
from edgetune.rollout.ownership.lease import as_owner
from tests.lib.report.test_report import TAGS, Reader, effect
from tests.support.action_case import EdgetuneActionTestCase
from tests.support.campaign_world import CampaignWorld
from tests.support.hostile import HOSTILE


class ReportCampaignTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = ReportCampaign
    world: CampaignWorld

    def make_world(self, folder: Path) -> CampaignWorld:
        self.folder = folder / "reports"
        world = CampaignWorld(folder / "world")
        world.config["report_dir"] = str(self.folder)
        world.begin_campaign()
        return world

    def report(self) -> str:
        """The page that it writes."""
        result = self.assert_succeeds(campaign=self.world.id)
        return Path(result["path"]).read_text(encoding="utf-8")

    def begin(self, ratio: float = 0.0) -> str:
        """The rollout of the canary, with a look that found this ratio, if any."""
        self.world.advance()
        rollout = self.world.record.pops["ams1"].rollout
        opened = as_owner(self.world.context, rollout)
        if ratio:
            found = Look(Verdict.IMPROVED, Decision.PROMOTE, "so", metrics=[effect(ratio)])
            opened.save_look(replace(found, until=1.0))
            opened.head.looks, opened.head.verdict = 1, found.conclusion
            opened.save()
        return rollout

    def test_draws_the_effect_by_pop_on_one_axis(self) -> None:
        self.begin(0.3)
        html = self.report()
        self.assertEqual(html.count('role="img"'), 1)
        self.assertIn('aria-label="ams1: −70 % (−75 % to −60 %), better"', html)
        self.assertEqual(html.count("test against control (log scale)"), 1)

    def test_leads_to_the_pages_that_there_are(self) -> None:
        rollout = self.begin(0.3)
        self.assertNotIn(f'href="{rollout}.html"', self.report())
        (self.folder / f"{rollout}.html").write_text("there")
        self.assertIn(f'href="{rollout}.html"', self.report())
        index = (self.folder / "index.html").read_text(encoding="utf-8")
        page = f"campaign-{self.world.id}.html"
        self.assertIn(f'<a href="{page}">{self.world.id}</a>', index)

    def test_its_page_needs_nothing_else_and_texts_are_only_shown(self) -> None:
        self.begin(0.3)
        for text in HOSTILE.values():
            self.hold(text)
            html = self.report()
            read = Reader(html)
            self.assertLessEqual(read.tags, TAGS)
            self.assertFalse([name for name, _ in read.attributes if name.startswith("on")])
            self.assertFalse(re.search(r"url\(|@import|<script", html))
            self.assertGreaterEqual(read.text.count(one_line(text)), 3)

    def hold(self, text: str) -> None:
        """Have it held by, and because of, such a text."""
        with seized(self.world.context, self.world.id) as work:
            work.record.become("held", text, text)
            work.record.rings[1].pops["ams2"].refused = text
            work.record.rings[1].verdict = {"reason": text, "verdict": text}
            work.save()

    def test_an_unknown_campaign_is_named(self) -> None:
        for text in ("nothing", *HOSTILE.values()):
            self.assert_wrong("campaign", campaign=text)

    def test_without_a_directory_the_option_is_named(self) -> None:
        del self.world.config["report_dir"]
        self.assert_wrong("report_dir", campaign=self.world.id)
