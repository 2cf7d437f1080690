# SPDX-License-Identifier: Apache-2.0
"""What people type in chat: one format understands it, and what an alias fixes stays fixed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from st2tests.base import BaseActionAliasTestCase

from edgetune.base.files import load_yaml
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
    others: list[str]

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


CASES = load_yaml(Path(__file__).with_name("aliases.yaml"))
for name, own in CASES.items():
    told = {"__test__": True, "__module__": __name__, "action_alias_name": f"edgetune_{name}"}
    globals()[f"Test_{name}"] = type(f"Test_{name}", (AliasCase,), {**told, **own})


def test_each_alias_has_its_cases() -> None:
    assert CASES.keys() == ALIASES.keys()


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
    assert action["runner_type"] != "python-script" or {"content_version", "env"} <= fixed


@pytest.mark.parametrize("name", ALIASES)
def test_what_is_fixed_is_a_value_of_its_action(name: str) -> None:
    """What has no expression is never asked of a person; it must fit as it stands."""
    types: dict[str, Any] = {"boolean": bool, "integer": int, "string": str}
    alias = ALIASES[name]
    for parameter, value in alias.get("immutable_parameters", {}).items():
        own = ACTIONS[alias["action_ref"]]["parameters"][parameter]
        is_absent = value is None and not own.get("required") and "default" not in own
        assert is_absent or type(value) is types[own["type"]], parameter


@pytest.mark.parametrize("name", ALIASES)
def test_reading_and_changing_commands_are_told_apart(name: str) -> None:
    """A command reads if its action is one of viewers, or makes nothing but plans."""
    alias = ALIASES[name]
    dry = alias.get("immutable_parameters", {}).get("dry_run") is True
    reads = alias["action_ref"] in {*roles()["edgetune_viewer"], "edgetune.plan_rollout"} or dry
    assert alias["description"].startswith("Reads only: " if reads else "Changes: ")
