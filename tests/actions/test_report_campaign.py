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
from edgetune.report.campaign import turn_length
from edgetune.report.campaign_page import planned_page
from edgetune.report.steps.run_campaign import BegunResult, run_campaign
from edgetune.rollout.ownership.lease import as_owner
from tests.lib.report.test_report import TAGS, Reader, effect
from tests.support.action_case import EdgetuneActionTestCase
from tests.support.campaign_world import CampaignWorld
from tests.support.hostile import HOSTILE
from tests.support.virtual_clock import VirtualClock


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


def planned(world: CampaignWorld) -> tuple[BegunResult, str]:
    """A dry run and its page."""
    told = run_campaign(world.context, "queue")
    return told, Path(told["path"]).read_text(encoding="utf-8")


def test_a_dry_run_has_a_page_with_who_when_and_what_costs_most(
    tmp_path: Path, clock: VirtualClock
) -> None:
    folder = tmp_path / "reports"
    world = CampaignWorld(tmp_path / "world", gates={"max_load": 0.8}, report_dir=str(folder))
    told, html = planned(world)
    read = Reader(html)
    assert read.tags <= TAGS and not re.search(r"url\(|@import|<script", html)
    turns = {own.pop: own for own in told["text"].schedule.turns}
    for pop, turn in turns.items():
        assert re.search(rf"{pop}\s.*?{turn_length(turn)}", read.text, re.DOTALL), pop
    assert "no load of it is known: 1 host may be out" in read.text
    assert "no schedule can end before" in read.text and "a dry run" in read.text
    costs = [own.constraint for own in told["text"].schedule.costs]
    assert costs and read.text.index(costs[0]) <= min(map(read.text.index, costs))
    assert told["message"].endswith(f"; its page is {folder}/campaign-queue.html")
    assert "campaign-queue.html" in (folder / "index.html").read_text(encoding="utf-8")


def test_the_page_of_a_dry_run_only_shows_texts(tmp_path: Path, clock: VirtualClock) -> None:
    world = CampaignWorld(tmp_path / "world", report_dir=str(tmp_path / "reports"))
    shown = run_campaign(world.context, "queue")["text"]
    for text in HOSTILE.values():
        read = Reader(planned_page(replace(shown, refused={"ams1": text}, closed=[text]), 1.0))
        assert read.tags <= TAGS and one_line(text) in read.text


def test_a_dry_run_is_told_although_its_page_cannot_be_written(
    tmp_path: Path, clock: VirtualClock
) -> None:
    (tmp_path / "file").write_text("")
    world = CampaignWorld(tmp_path / "world", report_dir=str(tmp_path / "file"))
    told = run_campaign(world.context, "queue")
    assert (told["path"], told["refused"]) == ("", 0)
    assert "its page could not be written" in told["message"]


def test_without_a_directory_and_once_begun_no_page_is_written(
    tmp_path: Path, clock: VirtualClock
) -> None:
    world = CampaignWorld(tmp_path / "world")
    assert run_campaign(world.context, "queue")["path"] == ""
    world = CampaignWorld(tmp_path / "other", report_dir=str(tmp_path / "reports"))
    begun = run_campaign(world.context, "queue", dry_run=False, requested_by="ana")
    assert begun["path"] == "" and not (tmp_path / "reports").exists()
