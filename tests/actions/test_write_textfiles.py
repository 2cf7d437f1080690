# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from write_textfiles import WriteTextfiles

from tests.support.action_case import EdgetuneActionTestCase

DIRECTORY = "/var/lib/prometheus/node-exporter"


class WriteTextfilesTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = WriteTextfiles

    def test_each_host_is_asked_to_keep_the_file(self) -> None:
        self.world.config["textfile_directory"] = DIRECTORY
        result = self.assert_succeeds(pop="lab1")
        self.assertEqual(result["message"], f"8 hosts keep {DIRECTORY}/edgetune.prom")
        asked = [fields for _, verb, fields in self.world.hosts.asked if verb == "textfile"]
        self.assertEqual(asked, [{"directory": DIRECTORY}] * 8)
        self.assertEqual(self.world.hosts.changing(), [])

    def test_without_a_directory_hosts_keep_none(self) -> None:
        self.assertEqual(self.assert_succeeds(pop="lab1")["message"], "8 hosts keep none")

    def test_hosts_without_the_file_are_named_and_are_no_failure(self) -> None:
        self.world.config["textfile_directory"] = DIRECTORY
        self.world.hosts.unreachable.add("e003")
        self.world.hosts.without_textfile["e001"] = "this host has no directory"
        result = self.assert_succeeds(pop="lab1")
        missing = {"e001": "this host has no directory", "e003": "timed out"}
        self.assertEqual((result["written"], result["missing"]), (6, missing))
        self.assertTrue(result["message"].endswith("; not e001, e003"))

    def test_an_unknown_pop_is_named(self) -> None:
        self.assert_wrong("pop", pop="nowhere")
