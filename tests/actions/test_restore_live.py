# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from restore_live import RestoreLive

from tests.support.action_case import BatchActionTestCase


class RestoreLiveTestCase(BatchActionTestCase):
    __test__ = True
    action_cls = RestoreLive

    def setUp(self) -> None:
        super().setUp()
        self.world.roll(0)
        (self.host,) = self.world.at(0)
        self.back = self.world.mark("rolling_back")["first_batch"]

    def test_takes_back_in_place_and_leaves_the_rest_waiting(self) -> None:
        result = self.assert_succeeds(**self.of_batch(self.back))
        self.assertEqual(list(result["hosts"]), [self.host])
        self.assertEqual(self.world.at(self.back), {self.host: "planned"})
        asked = [request for _, verb, request in self.world.hosts.asked if verb == "restore"]
        self.assertEqual(asked[-1]["live"], ["sysctl:net.core.somaxconn"])
