# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

from congestion_report import CongestionReport

from tests.support.congestion_case import CongestionActionTestCase


class CongestionReportTestCase(CongestionActionTestCase):
    __test__ = True
    action_cls = CongestionReport

    def test_a_pop_is_told_in_full_and_has_a_page(self) -> None:
        self.world.config["report_dir"] = f"{self.world.folder}/reports"
        (self.world.folder / "reports").mkdir()
        result = self.assert_succeeds(pop="lab1")
        self.assertIn("lab1: tuning, ", result["text"])
        self.assertEqual(result["color"], "good")
        page = Path(result["path"]).read_text()
        self.assertIn("Congestion control of lab1", page)
        self.assertIn(
            "congestion-lab1.html", (Path(result["path"]).parent / "index.html").read_text()
        )

    def test_all_pops_have_a_line_and_nothing_is_written(self) -> None:
        result = self.assert_succeeds()
        self.assertEqual((result["path"], result["pop"]), ("", ""))
        self.assertIn("prefixes treated on 4 of 4 hosts", result["text"])
