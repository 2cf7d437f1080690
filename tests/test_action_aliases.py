# SPDX-License-Identifier: Apache-2.0
"""What people type in chat: one format understands it, and what an alias fixes stays fixed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from st2tests.base import BaseActionAliasTestCase

from edgetune.fields import load_yaml

ROOT = Path(__file__).resolve().parents[1]


class AliasCase(BaseActionAliasTestCase):
    __test__ = False

    def assert_understood(self, command: str, format_string: str, **parameters: str) -> None:
        formats = self.action_alias_db.get_format_strings()
        self.assertCommandMatchesExactlyOneFormatString(formats, command)
        self.assertExtractedParametersMatch(format_string, command, parameters)

    def assert_not_understood(self, command: str) -> None:
        formats = self.action_alias_db.get_format_strings()
        with self.assertRaises(AssertionError, msg=command):
            self.assertCommandMatchesExactlyOneFormatString(formats, command)

    def refused(self, **parameters: str) -> set[str]:
        """What StackStorm refuses to take from a command, because the alias fixes it."""
        fixed: dict[str, Any] = self.action_alias_db.immutable_parameters or {}
        return set(parameters) & set(fixed)


class PlanAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_plan"
    format_string = "edgetune plan {{ tuning }} on {{ pop }}"

    def test_command(self) -> None:
        self.assert_understood(
            "edgetune plan accept_queue on lab1",
            self.format_string,
            tuning="accept_queue",
            pop="lab1",
        )

    def test_options_at_the_end(self) -> None:
        given = {"tuning": "accept_queue", "pop": "lab1", "seed": "7"}
        command = "edgetune plan accept_queue on lab1 seed=7"
        self.assert_understood(command, self.format_string, **given)
        self.assertEqual(self.refused(**given), set())

    def test_injected_plan_is_refused(self) -> None:
        given = {"tuning": "accept_queue", "pop": "lab1", "plan": "sha256:0"}
        command = "edgetune plan accept_queue on lab1 plan=sha256:0"
        self.assert_understood(command, self.format_string, **given)
        self.assertEqual(self.refused(**given), {"plan"})

    def test_half_a_command(self) -> None:
        self.assert_not_understood("edgetune plan")
        self.assert_not_understood("edgetune plan accept_queue")
        self.assert_not_understood("edgetune plan accept_queue on")


class DiagnoseAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_diagnose"

    def test_command(self) -> None:
        self.assert_understood("edgetune diagnose lab1", "edgetune diagnose {{ pop }}", pop="lab1")

    def test_other_commands(self) -> None:
        self.assert_not_understood("edgetune diagnose")
        self.assert_not_understood("diagnose lab1")


class StatusAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_status"

    def test_all_rollouts(self) -> None:
        self.assert_understood("edgetune status", "edgetune status")

    def test_one_rollout(self) -> None:
        self.assert_understood(
            "edgetune status lab1-7", "edgetune status {{ rollout }}", rollout="lab1-7"
        )

    def test_rollouts_of_a_pop(self) -> None:
        self.assert_understood("edgetune status pop=lab1", "edgetune status", pop="lab1")

    def test_other_commands(self) -> None:
        self.assert_not_understood("edgetune statuses")
        self.assert_not_understood("status lab1-7")


class StopAllAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_stop_all"

    def test_with_and_without_a_reason(self) -> None:
        self.assert_understood("edgetune stop all", "edgetune stop all")
        command = "edgetune stop all errors in every PoP"
        reason = "errors in every PoP"
        self.assert_understood(command, "edgetune stop all {{ reason }}", reason=reason)

    def test_other_commands(self) -> None:
        self.assert_not_understood("edgetune stop")
        self.assert_not_understood("edgetune stop lab1")


class ResumeAllAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_resume_all"

    def test_command(self) -> None:
        self.assert_understood("edgetune resume all", "edgetune resume all")

    def test_other_commands(self) -> None:
        self.assert_not_understood("edgetune resume")


class RetireAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_retire"

    def test_with_and_without_a_reason(self) -> None:
        given = {"tuning": "accept_queue", "pop": "lab1"}
        command = "edgetune retire accept_queue from lab1"
        self.assert_understood(command, "edgetune retire {{ tuning }} from {{ pop }}", **given)
        self.assert_understood(
            f"{command} reason=replaced",
            "edgetune retire {{ tuning }} from {{ pop }}",
            **given,
            reason="replaced",
        )

    def test_half_a_command(self) -> None:
        self.assert_not_understood("edgetune retire accept_queue")


def test_each_alias_has_its_cases() -> None:
    tried = {case.action_alias_name for case in AliasCase.__subclasses__()}
    assert tried == {load_yaml(path)["name"] for path in (ROOT / "aliases").glob("*.yaml")}
