# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from find_tuned_pops import FindTunedPops

from tests.support.congestion_case import CongestionActionTestCase


class FindTunedPopsTestCase(CongestionActionTestCase):
    __test__ = True
    action_cls = FindTunedPops

    def test_pops_with_an_entry_are_found(self) -> None:
        result = self.assert_succeeds()
        self.assertEqual(result, {"pops": ["lab1"], "message": "PoPs that are tuned: 1"})
        self.world.write_entry(None)
        result = self.assert_succeeds()
        self.assertEqual(result["message"], "no PoP has congestion: in the inventory")
        self.assert_wrong("pop", pop="lab1")
