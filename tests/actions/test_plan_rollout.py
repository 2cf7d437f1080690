# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from plan_rollout import PlanRollout

from edgetune.base.documents.options import Options
from edgetune.base.fields import Fields
from edgetune.base.options import options_of, read_options
from edgetune.rollout.record.rollout import load_plan
from tests.support.action_case import EdgetuneActionTestCase


class PlanRolloutTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = PlanRollout

    def test_options_that_were_not_given_are_those_of_the_metadata(self) -> None:
        result = self.assert_succeeds(pop="lab1", tuning="accept_queue")
        options = load_plan(self.world.context, result["plan"]).options
        self.assertNotEqual(options.seed, 0)
        given = {
            each.name: self.metadata["parameters"][each.name]["default"]
            for each in options_of(Options)
        }
        read = read_options(Fields({**given, "seed": options.seed}, "metadata"), Options)
        self.assertEqual(options, read)

    def test_durations_are_written_as_people_do_or_in_seconds(self) -> None:
        given = {"baseline": "1h", "soak": "1d12h", "interval": "1m30s", "warmup": "600"}
        result = self.assert_succeeds(pop="lab1", tuning="accept_queue", **given)
        options = load_plan(self.world.context, result["plan"]).options
        read = (options.baseline, options.soak, options.interval, options.warmup)
        self.assertEqual(read, (3600, 129600, 90, 600))
