# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

from diff_inventory import DiffInventory

from tests.support.action_case import EdgetuneActionTestCase
from tests.support.world import EmptyWorld


class DiffInventoryTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = DiffInventory

    def make_world(self, folder: Path) -> EmptyWorld:
        return EmptyWorld(folder)

    def test_keeps_nothing(self) -> None:
        before = dict(self.world.context.store.list("edgetune."))
        for _ in range(2):
            result = self.assert_succeeds()
            self.assertEqual(result["message"], "yaml: 1 PoP, 8 hosts; nothing was kept yet")
            self.assertEqual(dict(self.world.context.store.list("edgetune.")), before)

    def test_a_pop_that_is_not_there_is_named(self) -> None:
        self.assert_wrong("pop", pop="nowhere")
