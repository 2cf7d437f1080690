# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from diagnose_hosts import DiagnoseHosts

from tests.lib.hosts.test_diagnosis import found
from tests.support.action_case import EdgetuneActionTestCase


class DiagnoseHostsTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = DiagnoseHosts

    def test_says_what_is_wrong_and_changes_nothing(self) -> None:
        self.world.hosts.found["e002"] = [found("accept_queue", 12.0, "accept_queue")]
        before = self.world.head
        result = self.assert_succeeds(pop="lab1")
        (row,) = result["findings"]
        self.assertEqual((row["count"], row["worst"]["host"]), (1, "e002"))
        self.assertEqual(result["message"], "8 hosts diagnosed; would help: accept_queue (1)")
        self.assertEqual(self.world.hosts.changing(), [])
        self.assertEqual(self.world.head, before)

    def test_asks_as_it_is_told(self) -> None:
        given = {"hosts": ["e001"], "interval": "0s", "services": ["haproxy"]}
        self.assertEqual(self.assert_succeeds(pop="lab1", **given)["asked"], 1)
        asked = [
            (name, fields) for name, verb, fields in self.world.hosts.asked if verb == "diagnose"
        ]
        self.assertEqual(asked, [("e001", {"seconds": 0, "services": ["haproxy"]})])

    def test_silent_hosts_are_named_and_are_no_failure_of_the_others(self) -> None:
        self.world.hosts.unreachable.add("e003")
        result = self.assert_succeeds(pop="lab1")
        self.assertEqual((result["answered"], result["missing"]), (7, {"e003": "timed out"}))

    def test_silence_of_all_is_a_failure(self) -> None:
        self.world.hosts.unreachable = set(self.world.balancer.state)
        ok, result = self.run_action(pop="lab1")
        self.assertEqual((ok, result["reason"]), (False, "host"))
        self.assertIn("no host of lab1 answered: e000: timed out; ", result["error"])
        self.assertIn("; and 5 more", result["error"])

    def test_what_a_device_says_is_no_template(self) -> None:
        self.world.hosts.found["e002"] = [found("{{ secret }}", 1.0)]
        text = self.assert_succeeds(pop="lab1")["text"]
        self.assertNotIn("{{", text)

    def test_wrong_parameters_are_named(self) -> None:
        self.assert_wrong("pop", pop="nowhere")
        for field, value in (
            ("hosts", ["e9"]),
            ("interval", "61s"),
            ("interval", "0.5"),
            ("services", ["a b"]),
        ):
            with self.subTest(field):
                self.assert_wrong(field, pop="lab1", **{field: value})
