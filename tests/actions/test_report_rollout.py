# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

from report_rollout import ReportRollout

from edgetune.base import clock
from edgetune.rollout.ownership.lease import as_owner
from edgetune.rollout.steps.check_baseline import check_baseline
from edgetune.rollout.steps.compare_groups import compare_groups
from tests.lib.rollout.test_looks import Soaking
from tests.support import ROOT
from tests.support.action_case import EdgetuneActionTestCase
from tests.support.builders import reading
from tests.support.hostile import HOSTILE

SLOTS = 8
"""Courses of samples in a page: of drops and of packets, for each group, wide and narrow. Of what
never happened there are none."""


class ReportRolloutTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = ReportRollout
    world: Soaking

    def make_world(self, folder: Path) -> Soaking:
        self.folder = folder / "reports" / "of edgetune"
        world = Soaking(folder)
        world.config["report_dir"] = str(self.folder)
        return world

    def report(self, **parameters: Any) -> str:
        """The page that it writes."""
        result = self.assert_succeeds(rollout=self.world.rollout, **parameters)
        return Path(result["path"]).read_text(encoding="utf-8")

    def judge(self) -> None:
        check_baseline(self.world.context, self.world.rollout, self.world.epoch)
        self.world.soak(test=0.9, began=700)
        compare_groups(self.world.context, self.world.rollout)

    def test_writes_a_page_and_an_index_that_others_can_read_and_changes_nothing(self) -> None:
        self.judge()
        asked, store = len(self.world.hosts.asked), self.world.context.store
        records = dict(store.list("edgetune."))
        result = self.assert_succeeds(rollout=self.world.rollout)
        self.assertEqual(len(self.world.hosts.asked), asked)
        self.assertEqual(dict(store.list("edgetune.")), records)
        path = self.folder / f"{self.world.rollout}.html"
        self.assertEqual((result["path"], result["url"]), (str(path), ""))
        self.assertEqual(result["message"], f"the report is {path}")
        self.assertEqual(path.stat().st_mode & 0o777, 0o644)
        page = path.read_text(encoding="utf-8")
        self.assertIn("Test hosts dropped 7", page)
        self.assertEqual(page.count('class="slots'), SLOTS)
        self.assertEqual(page.count("<aside>"), 0)
        index = (self.folder / "index.html").read_text(encoding="utf-8")
        self.assertIn(f'<a href="{path.name}">{self.world.rollout}</a>', index)
        self.assertIn("connections dropped by full accept queues: −7", index)
        self.assertIn(">improved</td>", index)

    def test_a_picture_is_drawn_where_a_browser_is_named_and_an_earlier_one_goes(self) -> None:
        self.world.config["report_renderer"] = "chromium"
        self.world.config["report_url"] = "https://reports.example/"
        drawn = self.folder / f"{self.world.rollout}.png"
        with mock.patch("edgetune.report.files.png_of", return_value=b"PNG") as png_of:
            result = self.assert_succeeds(rollout=self.world.rollout)
        html, program = png_of.call_args.args
        self.assertIn("edgetune rollout", html)
        self.assertEqual(program, "chromium")
        self.assertEqual((result["image"], drawn.read_bytes()), (str(drawn), b"PNG"))
        self.assertEqual(result["image_url"], f"https://reports.example/{drawn.name}")
        with mock.patch("edgetune.report.files.png_of", return_value=b""):
            result = self.assert_succeeds(rollout=self.world.rollout)
        self.assertEqual((result["image"], result["image_url"]), ("", ""))
        self.assertEqual([*self.folder.glob("*.png")], [])

    def test_reasons_are_those_of_the_planned_version_of_the_tuning(self) -> None:
        self.assertIn("queue as many accepted connections", self.report())
        own = self.folder.parent / "tunings"
        own.mkdir()
        text = (ROOT / "tunings/accept_queue.yaml").read_text(encoding="utf-8")
        (own / "accept_queue.yaml").write_text(text.replace("1.0.0", "1.0.1"), encoding="utf-8")
        self.world.config["tunings"] = [str(own)]
        self.assertIn("the catalogue does not hold accept_queue 1.0.0", self.report())

    def test_is_written_again_over_the_one_before(self) -> None:
        before = self.report()
        self.judge()
        self.assertNotEqual(self.report(), before)
        names = sorted(path.name for path in self.folder.iterdir())
        self.assertEqual(names, ["index.html", f"{self.world.rollout}.html"])

    def test_a_page_that_cannot_be_written_leaves_the_one_before(self) -> None:
        before = self.report()
        full = mock.patch("os.fchmod", side_effect=OSError(28, "disk full"))
        with full:
            self.assert_refused(
                "input", "report_dir: cannot be written", rollout=self.world.rollout
            )
        path = self.folder / f"{self.world.rollout}.html"
        self.assertEqual(len(list(self.folder.iterdir())), 2)
        self.assertEqual(path.read_text(encoding="utf-8"), before)

    def test_an_unknown_rollout_is_named(self) -> None:
        for text in ("nothing", *HOSTILE.values()):
            self.assert_wrong("rollout", rollout=text)
        self.assertFalse(self.folder.exists())

    def test_says_which_samples_are_gone(self) -> None:
        self.judge()
        opened = as_owner(self.world.context, self.world.rollout)
        later = clock.wall() + 2e6
        self.world.context.samples.add("lab1", [reading("e000", later)])
        page = self.report()
        self.assertIn("No samples of that time are left", page)
        self.assertEqual((page.count('class="slots'), page.count('class="steps test"')), (0, 5))
        self.assertEqual(opened.head.looks, 4)

    def test_of_long_rollouts_few_samples_are_read(self) -> None:
        self.judge()
        with mock.patch("edgetune.report.steps.report_rollout._SLOTS", 20):
            page = self.report()
        self.assertEqual(page.count('class="slots'), SLOTS)
