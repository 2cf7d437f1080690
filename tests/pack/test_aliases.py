# SPDX-License-Identifier: Apache-2.0
"""What people type in chat: one format understands it, and what an alias fixes stays fixed."""

from __future__ import annotations

import re
from typing import Any

import pytest
from st2tests.base import BaseActionAliasTestCase

from edgetune.files import load_yaml
from tests.docs.test_security_page import roles
from tests.support import ROOT
from tests.support.metadata.values import documents, own_parameters
from tests.support.printed import PAGES

ALIASES = documents(ROOT, "aliases")
ACTIONS = {f"edgetune.{name}": own for name, own in documents(ROOT, "actions").items()}
FORMATS = [
    text for own in ALIASES.values() for item in own["formats"] for text in item["representation"]
]
NAMED = {"epoch", "owner", "requested_by", "channel", "drop_sessions", "approved", "accept"}


class AliasCase(BaseActionAliasTestCase):
    """Set what is understood as which parameters, and what is not understood."""

    __test__ = False
    understood: dict[str, dict[str, str]]
    others: tuple[str, ...] = ()

    def _get_base_pack_path(self) -> str:
        """StackStorm's class takes the folder above that of the test for the pack."""
        return str(ROOT)

    def test_commands_are_of_one_format_of_all(self) -> None:
        for command, parameters in self.understood.items():
            with self.subTest(command):
                self.assertCommandMatchesExactlyOneFormatString(FORMATS, command)
                own = self.formats_of(command)
                self.assertEqual(len(own), 1)
                self.assertExtractedParametersMatch(own[0], command, parameters)

    def test_no_case_is_needed_and_that_of_a_name_is_kept(self) -> None:
        """A phone begins with a capital letter; `LAB1` may be another PoP than `lab1`."""
        for command, parameters in self.understood.items():
            with self.subTest(command):
                shouted, given = in_capitals(command, parameters)
                (own,) = self.formats_of(shouted)
                self.assertExtractedParametersMatch(own, shouted, given)

    def test_the_bot_takes_a_command_for_the_same(self) -> None:
        """It looks for itself, and hands StackStorm the first format that fits."""
        for command, parameters in self.understood.items():
            for typed in (command, in_capitals(command, parameters)[0]):
                with self.subTest(typed):
                    fitting = [own for own in FORMATS if pattern_of_bot(own).search(typed)]
                    self.assertEqual(fitting[:1], self.formats_of(typed))
                    self.assertLessEqual({*fitting}, {*self.action_alias_db.get_format_strings()})

    def test_other_commands_are_not_understood(self) -> None:
        for command in self.others:
            self.assertEqual(self.formats_of(command), [], command)

    def test_what_is_fixed_is_noticed_at_the_end(self) -> None:
        """StackStorm takes such a word for a parameter, and then refuses one that is fixed."""
        command, *_ = self.understood
        alias = ALIASES[self.action_alias_name.removeprefix("edgetune_")]
        for name in alias.get("immutable_parameters", {}):
            longer = f"{command} {name}=true"
            (own,) = self.formats_of(longer)
            given = {**self.understood[command], name: "true"}
            self.assertExtractedParametersMatch(own, longer, given)

    def formats_of(self, command: str) -> list[str]:
        return [own for own in self.action_alias_db.get_format_strings() if self.fits(own, command)]

    def fits(self, own: str, command: str) -> bool:
        try:
            self.assertCommandMatchesExactlyOneFormatString([own], command)
        except AssertionError:
            return False
        return True


def in_capitals(command: str, parameters: dict[str, str]) -> tuple[str, dict[str, str]]:
    """A command and what it says, but for `key=value` as at the end of it."""
    words = [word if "=" in word else word.upper() for word in command.split(" ")]
    given = {
        name: value if f"{name}={value}" in command else value.upper()
        for name, value in parameters.items()
    }
    return " ".join(words), given


def pattern_of_bot(own: str) -> re.Pattern[str]:
    """What hubot-stackstorm makes of a format (`getRegexForFormatString`), in JavaScript."""
    pairs = r"""(\s+(\S+)\s*=("([\s\S]*?)"|'([\s\S]*?)'|({[\s\S]*?})|(\S+))\s*)*"""
    optional = r"(\s*){{\s*\S+\s*=\s*(?:({.+?}|.+?))\s*}}(\s*)"
    own = re.sub(optional, r"\\s*(\1([\\s\\S]+?)\3)?\\s*", own)
    own = re.sub(r"\s*{{.+?}}\s*", r"\\s*([\\s\\S]+?)\\s*", own)
    return re.compile(rf"^\s*{own}{pairs}\s*$", re.IGNORECASE)


def in_both_cases(own: str) -> str:
    """The same format with each letter in both cases; what is in both already stays."""
    parts = re.findall(r"\{\{.*?\}\}|\(\?.|\\.|\[[^]]*\]|.", own)
    return "".join(f"[{p.upper()}{p.lower()}]" if p.isalpha() else p for p in parts)


class PlanAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_plan"
    understood = {
        "edgetune plan accept_queue on lab1": {"tuning": "accept_queue", "pop": "lab1"},
        "edgetune plan accept_queue on lab1 seed=7 soak=60": {
            "tuning": "accept_queue",
            "pop": "lab1",
            "seed": "7",
            "soak": "60",
        },
    }
    others = ("edgetune plan", "edgetune plan accept_queue", "edgetune plan accept_queue on")


class StartAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_start"
    understood = {
        "edgetune start accept_queue on lab1": {
            "tuning": "accept_queue",
            "pop": "lab1",
            "plan": "",
        },
        "edgetune start accept_queue on lab1 plan sha256:0011223344556677": {
            "tuning": "accept_queue",
            "pop": "lab1",
            "plan": "sha256:0011223344556677",
        },
        "edgetune start accept_queue on lab1 pause_after=1": {
            "tuning": "accept_queue",
            "pop": "lab1",
            "plan": "",
            "pause_after": "1",
        },
    }
    others = ("edgetune start", "edgetune start accept_queue", "start accept_queue on lab1")


class UninstallAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_uninstall"
    understood = {"edgetune uninstall from lab1": {"pop": "lab1"}}
    others = ("edgetune uninstall", "edgetune uninstall lab1", "edgetune uninstall from")


class CarryOnAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_carry_on"
    understood = {
        "edgetune carry on lab1-7": {"rollout": "lab1-7"},
        "edgetune carry-on lab1-7": {"rollout": "lab1-7"},
    }
    others = ("edgetune carry on", "edgetune carry lab1-7")


class RollBackAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_roll_back"
    understood = {
        "edgetune roll back lab1-7": {"rollout": "lab1-7", "reason": ""},
        "edgetune rollback lab1-7": {"rollout": "lab1-7", "reason": ""},
        "edgetune roll-back lab1-7": {"rollout": "lab1-7", "reason": ""},
        "edgetune roll back lab1-7 because of its p95": {
            "rollout": "lab1-7",
            "reason": "of its p95",
        },
    }
    others = ("edgetune roll back", "edgetune rollback", "edgetune rollbacks lab1-7")


class CongestionAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_congestion"
    understood = {
        "edgetune congestion": {},
        "edgetune congestion of lab1": {"pop": "lab1"},
    }
    others = ("edgetune congestion lab1", "edgetune congestions of lab1", "congestion of lab1")


class CongestionRollBackAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_congestion_roll_back"
    understood = {
        "edgetune congestion roll back lab1": {"pop": "lab1", "reason": ""},
        "edgetune congestion rollback lab1": {"pop": "lab1", "reason": ""},
        "edgetune congestion roll-back lab1 because of calls": {
            "pop": "lab1",
            "reason": "of calls",
        },
    }
    others = ("edgetune congestion roll back", "edgetune congestion rollbacks lab1")


class CongestionResumeAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_congestion_resume"
    understood = {
        "edgetune congestion resume lab1": {"pop": "lab1", "reason": ""},
        "edgetune congestion resume lab1 because it is mended": {
            "pop": "lab1",
            "reason": "it is mended",
        },
    }
    others = ("edgetune congestion resume",)


class RetireAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_retire"
    understood = {
        "edgetune retire accept_queue from lab1": {"tuning": "accept_queue", "pop": "lab1"},
        "edgetune retire accept_queue from lab1 reason=replaced": {
            "tuning": "accept_queue",
            "pop": "lab1",
            "reason": "replaced",
        },
    }
    others = ("edgetune retire accept_queue",)


class HandOverAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_hand_over"
    understood = {
        "edgetune hand over accept_queue on lab1": {"tuning": "accept_queue", "pop": "lab1"},
        "edgetune hand over accept_queue on lab1 reason=leaving": {
            "tuning": "accept_queue",
            "pop": "lab1",
            "reason": "leaving",
        },
    }
    others = ("edgetune hand over accept_queue",)


class ReportAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_report"
    understood = {"edgetune report lab1-7": {"rollout": "lab1-7"}}
    others = ("edgetune report",)


class DiagnoseAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_diagnose"
    understood = {"edgetune diagnose lab1": {"pop": "lab1"}}
    others = ("edgetune diagnose", "diagnose lab1")


class DoctorAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_doctor"
    understood = {
        "edgetune doctor lab1": {"pop": "lab1"},
        "edgetune doctor lab1 tuning=accept_queue": {"pop": "lab1", "tuning": "accept_queue"},
    }
    others = ("edgetune doctor", "doctor lab1")


class StatusAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_status"
    understood = {
        "edgetune status": {},
        "edgetune status lab1-7": {"rollout": "lab1-7"},
        "edgetune status pop=lab1": {"pop": "lab1"},
    }
    others = ("edgetune statuses", "status lab1-7")


class CompareAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_compare"
    understood = {"edgetune compare lab1-7": {"rollout": "lab1-7"}}
    others = ("edgetune compare",)


class HoldAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_pause"
    understood = {
        "edgetune pause lab1": {"pop": "lab1", "reason": ""},
        "edgetune pause lab1 because of the final": {"pop": "lab1", "reason": "of the final"},
    }
    others = ("edgetune pause",)


class ResumeAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_resume"
    understood = {
        "edgetune resume lab1": {"pop": "lab1"},
        "edgetune resume allentown": {"pop": "allentown"},
        "edgetune resume lab1 cause=surge": {"pop": "lab1", "cause": "surge"},
        "edgetune resume lab1 cause=pause_after": {"pop": "lab1", "cause": "pause_after"},
    }
    others = (
        "edgetune resume",
        "edgetune resume all",
        "edgetune resume  all ",
        "edgetune resume ALL",
        "Edgetune Resume All",
    )


class ApproveAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_approve"
    understood = {
        "edgetune approve sha256:00": {"digest": "sha256:00", "reason": ""},
        "edgetune approve sha256:00 because we talked": {
            "digest": "sha256:00",
            "reason": "we talked",
        },
    }
    others = ("edgetune approve",)


class CampaignStatusAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_campaign_status"
    understood = {
        "edgetune campaign status": {},
        "edgetune campaign status queue-7": {"campaign": "queue-7"},
    }
    others = ("edgetune campaign", "edgetune campaigns")


class CampaignPlanAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_campaign_plan"
    understood = {"edgetune campaign plan queue": {"campaign": "queue"}}
    others = ("edgetune campaign plan",)


class CampaignStartAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_campaign_start"
    understood = {"edgetune campaign start queue": {"campaign": "queue"}}
    others = ("edgetune campaign start",)


class CampaignHoldAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_campaign_hold"
    understood = {
        "edgetune campaign hold queue-7": {"campaign": "queue-7", "reason": ""},
        "edgetune campaign hold queue-7 because of the final": {
            "campaign": "queue-7",
            "reason": "of the final",
        },
    }
    others = ("edgetune campaign hold",)


class CampaignResumeAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_campaign_resume"
    understood = {"edgetune campaign resume queue-7": {"campaign": "queue-7", "reason": ""}}
    others = ("edgetune campaign resume",)


class CampaignAbortAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_campaign_abort"
    understood = {"edgetune campaign abort queue-7": {"campaign": "queue-7", "reason": ""}}
    others = ("edgetune campaign abort",)


class StopAllAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_stop_all"
    understood = {
        "edgetune stop all": {},
        "edgetune stopall": {},
        "edgetune stop-all": {},
        "edgetune stop all errors in every PoP": {"reason": "errors in every PoP"},
    }
    others = ("edgetune stop", "edgetune stop lab1")


class ResumeAllAliasTestCase(AliasCase):
    __test__ = True
    action_alias_name = "edgetune_resume_all"
    understood = {"edgetune resume all": {}, "edgetune resumeall": {}, "edgetune resume-all": {}}
    others = ("edgetune resume",)


def test_each_alias_has_its_cases() -> None:
    tried = {case.action_alias_name for case in AliasCase.__subclasses__()}
    assert tried == {load_yaml(path)["name"] for path in (ROOT / "aliases").glob("*.yaml")}


@pytest.mark.parametrize("own", FORMATS)
def test_each_letter_is_taken_in_both_cases(own: str) -> None:
    """By classes of letters: StackStorm minds the case, and the bot's JavaScript knows no (?i)."""
    assert own == in_both_cases(own)
    assert set(re.findall(r"\(\?(.)", own)) <= {":", "!"}


def test_every_command_of_chat_that_a_page_shows_is_understood() -> None:
    shown = [
        typed for page in PAGES for typed in re.findall(r"`!(edgetune [^`]+)`", page.read_text())
    ]
    assert shown
    for typed in shown:
        assert len([own for own in FORMATS if pattern_of_bot(own).search(typed)]) == 1, typed


@pytest.mark.parametrize("name", ALIASES)
def test_nothing_that_matters_can_be_appended(name: str) -> None:
    """What a switch, an epoch or a name would do is for the alias to say, or for the format."""
    alias = ALIASES[name]
    action = ACTIONS[alias["action_ref"]]
    formats = " ".join(text for item in alias["formats"] for text in item["representation"])
    for parameter, own in own_parameters(action).items():
        if own["type"] != "boolean" and parameter not in NAMED:
            continue
        fixed = parameter in alias.get("immutable_parameters", {}) or own.get("immutable")
        assert fixed or f"{{{{ {parameter} " in formats, parameter


@pytest.mark.parametrize(
    "ref", sorted({*(own["action_ref"] for own in ALIASES.values()), "edgetune.claim_pop"})
)
def test_nobody_chooses_the_code_or_its_environment(ref: str) -> None:
    """Of the runner: an older version of the pack would ask for no approval."""
    action = ACTIONS[ref]
    fixed = {name for name, own in action["parameters"].items() if own.get("immutable")}
    if action["runner_type"] == "python-script":
        assert {"content_version", "env"} <= fixed


@pytest.mark.parametrize("name", ALIASES)
def test_what_is_fixed_is_a_value_of_its_action(name: str) -> None:
    """What has no expression is never asked of a person; it must fit as it stands."""
    types: dict[str, Any] = {"boolean": bool, "integer": int, "string": str}
    alias = ALIASES[name]
    for parameter, value in alias.get("immutable_parameters", {}).items():
        own = ACTIONS[alias["action_ref"]]["parameters"][parameter]
        assert type(value) is types[own["type"]], parameter


@pytest.mark.parametrize("name", ALIASES)
def test_reading_and_changing_commands_are_told_apart(name: str) -> None:
    """A command reads if its action is one of viewers, or makes nothing but plans."""
    alias = ALIASES[name]
    dry = alias.get("immutable_parameters", {}).get("dry_run") is True
    reads = alias["action_ref"] in {*roles()["edgetune_viewer"], "edgetune.plan_rollout"} or dry
    assert alias["description"].startswith("Reads only: " if reads else "Changes: ")
