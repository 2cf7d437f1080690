# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import stat
from pathlib import Path
from unittest import mock

from export_metrics import ExportMetrics

from edgetune.base.documents.batch import batch_key
from edgetune.base.errors import StoreError
from edgetune.rollout.store.records import SqliteStore
from tests.support.action_case import EdgetuneActionTestCase
from tests.support.world import EmptyWorld


class ExportMetricsTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = ExportMetrics

    def make_world(self, folder: Path) -> EmptyWorld:
        world = super().make_world(folder)
        self.file = folder / "textfiles" / "edgetune.prom"
        world.config["metrics_file"] = str(self.file)
        return world

    def test_the_file_is_whole_and_readable_by_all(self) -> None:
        result = self.assert_succeeds()
        self.assertEqual(result["message"], f"{self.file} is written")
        self.assertIn('edgetune_hosts_quarantined{pop="lab1"} 0.0\n', self.file.read_text())
        self.assertEqual(stat.S_IMODE(self.file.stat().st_mode), 0o644)
        self.assertEqual([path.name for path in self.file.parent.iterdir()], [self.file.name])
        self.assertEqual(self.world.hosts.asked, [])

    def test_a_later_run_takes_its_place(self) -> None:
        self.assert_succeeds()
        first = self.file.stat().st_ino
        self.assert_succeeds()
        self.assertNotEqual(self.file.stat().st_ino, first)

    def test_a_part_that_cannot_be_read_is_counted(self) -> None:
        self.world.context.store.put(batch_key(self.world.rollout, 0), "{")
        result = self.assert_succeeds()
        self.assertEqual(result["pops_unknown"], 1)
        self.assertIn("a record of 1 PoP cannot be read", result["message"])

    def test_a_store_that_is_away_leaves_the_file_as_it_was(self) -> None:
        self.assert_succeeds()
        before = self.file.read_text()
        with mock.patch.object(SqliteStore, "list", side_effect=StoreError("no answer")):
            self.assert_refused("store", "no answer")
        self.assertEqual(self.file.read_text(), before)

    def test_a_file_that_cannot_be_written_is_named(self) -> None:
        for wrong in ("/proc/nowhere/x.prom", "relative.prom", "/tmp/no-ending", ""):
            self.world.config["metrics_file"] = wrong
            self.assert_wrong("metrics_file")
