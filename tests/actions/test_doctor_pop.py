# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

from doctor_pop import DoctorPop

from tests.support.action_case import EdgetuneActionTestCase
from tests.support.world import EmptyWorld


class DoctorPopTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = DoctorPop

    def make_world(self, folder: Path) -> EmptyWorld:
        return EmptyWorld(folder)

    def test_a_pop_that_is_well_succeeds_and_is_left_alone(self) -> None:
        result = self.assert_succeeds(pop="lab1")
        self.assertEqual(result["message"], "lab1: all 13 checks are well")
        self.assertEqual((self.world.hosts.changing(), self.world.balancer.log), ([], []))

    def test_a_check_that_fails_is_a_failure_with_all_of_the_text(self) -> None:
        self.world.hosts.unsupported["e004"] = "cannot be written: Read-only file system"
        self.assert_succeeds(pop="lab1")
        result = self.assert_fails(pop="lab1", tuning="accept_queue")
        self.assertEqual(result["failed"], ["settings"])
        self.assertIn("e004: sysctl:net.core.somaxconn: cannot be written:", result["text"])

    def test_what_a_host_says_is_no_template(self) -> None:
        self.world.hosts.health["e002"] = "answers 404 {{ secret }}"
        self.assertNotIn("{{", str(self.assert_fails(pop="lab1")))

    def test_wrong_parameters_are_named(self) -> None:
        self.assert_wrong("pop", pop="nowhere")
        self.assert_wrong("tuning", pop="lab1", tuning="nothing")
