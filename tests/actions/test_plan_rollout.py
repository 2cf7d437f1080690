# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from plan_rollout import PlanRollout

from edgetune.documents.options import Options
from edgetune.fields import Fields
from edgetune.options import options_of, read_options
from edgetune.rollout.record import load_plan
from tests.support.action_case import EdgetuneActionTestCase


class PlanRolloutTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = PlanRollout

    def test_plans_and_touches_no_host(self) -> None:
        result = self.assert_succeeds(pop="lab1", tuning="accept_queue")
        groups = {"test": result["test"], "control": result["control"]}
        self.assertEqual(
            {name: len(hosts) for name, hosts in groups.items()}, {"test": 4, "control": 4}
        )
        self.assertEqual(result["disruption"], "reboot")
        self.assertIn(result["plan"], result["text"])
        self.assertEqual((self.world.hosts.changing(), self.world.balancer.log), ([], []))

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

    def test_an_approved_plan_is_made_again(self) -> None:
        digest = self.world.plan.digest
        self.assertEqual(self.assert_succeeds(plan=digest)["plan"], digest)

    def test_wrong_parameters_are_named(self) -> None:
        wrong = {
            "pop": {"pop": "nowhere", "tuning": "accept_queue"},
            "tuning": {"pop": "lab1"},
            "hosts": {"pop": "lab1", "tuning": "accept_queue", "exclude": ["e099"]},
            "test_fraction": {"pop": "lab1", "tuning": "accept_queue", "test_fraction": 2},
        }
        for field, given in wrong.items():
            with self.subTest(field):
                self.assert_wrong(field, **given)

    def test_what_is_no_duration_is_named_with_the_forms(self) -> None:
        given = {"pop": "lab1", "tuning": "accept_queue"}
        says = 'parameter: soak: "15x" is no duration; write 90s, 15m, 2h, 1d, or seconds'
        self.assert_refused("input", says, soak="15x", **given)
        says = "parameter: interval: must be whole seconds, not 1.5s"
        self.assert_refused("input", says, interval="1.5", **given)

    def test_a_quarantined_host_is_named_with_the_way_out(self) -> None:
        (host,) = self.world.at(0)
        self.world.roll(0)
        self.world.hosts.errors[host, "restore"] = "Read-only file system"
        self.world.roll_back()
        says = f"{host}: is quarantined by rollout {self.world.rollout} -> st2 run edgetune"
        self.assert_refused("refused", says, pop="lab1", tuning="accept_queue")
