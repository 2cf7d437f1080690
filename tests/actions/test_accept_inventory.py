# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

from accept_inventory import AcceptInventory

from tests.support.action_case import EdgetuneActionTestCase
from tests.support.world import EmptyWorld


class AcceptInventoryTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = AcceptInventory

    def make_world(self, folder: Path) -> EmptyWorld:
        return EmptyWorld(folder)

    def test_keeps_what_the_source_tells_and_once_more_changes_nothing(self) -> None:
        result = self.assert_succeeds(pop="lab1")
        self.assertEqual(result["message"], "yaml: 1 PoP, 8 hosts; kept; 1 PoP differs")
        self.assertEqual(len(result["pops"][0]["added"]), 8)
        result = self.assert_succeeds(pop="lab1")
        self.assertEqual(result["message"], "yaml: 1 PoP, 8 hosts; kept as it was")

    def test_a_pop_that_is_not_there_is_named(self) -> None:
        self.assert_wrong("pop", pop="nowhere")
