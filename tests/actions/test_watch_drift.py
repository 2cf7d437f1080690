# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from dataclasses import asdict, replace

from watch_drift import WatchDrift

from edgetune import RECORD_SCHEMA
from edgetune.rollout.steps.sample_running import sample_running
from tests.support.action_case import EdgetuneActionTestCase


class WatchDriftTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = WatchDrift

    def test_samples_every_other_pop_on_which_a_tuning_stands(self) -> None:
        self.assertEqual(self.assert_succeeds()["samples"], 0)
        for state in ("soaking", "promoting", "complete"):
            self.world.mark(state)
        self.assertEqual(sample_running(self.world.context)["samples"], 0)
        self.assertEqual(self.assert_succeeds()["samples"], 8)
        self.assertEqual(self.world.hosts.changing(), [])
        for state in ("rolling_back", "rolled_back"):
            self.world.mark(state)
        self.assertEqual(self.assert_succeeds()["samples"], 0)

    def test_a_pop_that_is_no_more_stops_no_watch(self) -> None:
        for state in ("soaking", "promoting", "complete"):
            self.world.mark(state)
        gone = replace(self.world.head, id="gone", pop="gone1")
        text = json.dumps({"schema": RECORD_SCHEMA, **asdict(gone)})
        self.world.context.store.put("edgetune.rollout.gone", text)
        self.assertEqual(self.assert_succeeds()["samples"], 8)
