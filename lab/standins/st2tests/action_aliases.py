# SPDX-License-Identifier: Apache-2.0
"""The base class for tests of action aliases, and StackStorm's rules for matching a command.

A format is a regular expression with `{{name}}` (required) and `{{name = default}}` (optional).
Quotes around a value are dropped, and `key=value` pairs at the end of a command are parameters too,
whatever the format says.
"""

from __future__ import annotations

import copy
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from .pack_resource import BasePackResourceTestCase

__all__ = ["BaseActionAliasTestCase", "ParseException", "extract_parameters"]

_QUOTED_OR = r'"(?:[^"]*)"|\'(?:[^\']*)\'|\{{.+?\}}|{other}'
_VALUE = _QUOTED_OR.format(other=r"\S+")
_PAIRS_AT_END = re.compile(rf"((?:(?:^|\s+)[^\s=]+=(?:{_VALUE}))+)\s*$", re.DOTALL)
_PAIR = re.compile(rf"([^\s=]+)=({_VALUE})", re.DOTALL)
_PARAMETER = re.compile(r"(\s*)\{\{\s*(\w+)\s*(?:=\s*(.*?)\s*)?\}\}", re.DOTALL)
_MATCHED = r"[\"']?(?P<{name}>\{{.+?\}}|.+?)[\"']?"


class ParseException(ValueError):
    """A command does not match a format."""


def extract_parameters(format_str: str, param_stream: str) -> dict[str, Any]:
    """Parameters in a command, as strings; raises ParseException."""
    ending = _PAIRS_AT_END.search(param_stream)
    command = param_stream[: ending.start()] if ending else param_stream
    matched = _format_regex(format_str).search(f" {command} ")
    if not matched:
        raise ParseException(
            f'Command "{param_stream}" doesn\'t match format string "{format_str}"'
        )
    values = matched.groupdict()
    for _, name, default in _PARAMETER.findall(format_str):
        values[name] = values[name] or (_unquoted(default) if default else values[name])
    pairs = _PAIR.findall(ending.group(1)) if ending else []
    values.update({name: _unquoted(value) for name, value in pairs})
    if format_str and not command.strip() and not any(values.values()):
        raise ParseException("No value supplied and no default value found.")
    return values


def _format_regex(format_str: str) -> re.Pattern[str]:
    pattern = _PARAMETER.sub(_parameter_regex, format_str)
    start = "" if pattern.startswith(("^", r"\A")) else r"^\s*"
    end = "" if pattern.endswith(("$", r"\Z")) else r"\s*$"
    return re.compile(start + pattern + end, re.DOTALL)


def _parameter_regex(parameter: re.Match[str]) -> str:
    space, name, default = parameter.groups()
    required = space + _MATCHED.format(name=name)
    return required if default is None else f"(?:{required})?"


def _unquoted(text: str) -> str:
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if quoted else text


class BaseActionAliasTestCase(BasePackResourceTestCase):
    """Set `action_alias_name`, the name of an alias below aliases/."""

    action_alias_name: str | None = None
    action_alias_db: Any = None

    def setUp(self) -> None:
        super().setUp()
        if not self.action_alias_name:
            raise ValueError('"action_alias_name" class attribute needs to be provided')
        self.action_alias_db = self._get_action_alias_db_by_name(self.action_alias_name)

    def assertCommandMatchesExactlyOneFormatString(
        self, format_strings: list[str], command: str
    ) -> None:
        matched = [format_str for format_str in format_strings if _matches(format_str, command)]
        if len(matched) != 1:
            raise AssertionError(f'Command "{command}" matched {len(matched)} formats: {matched}')

    def assertExtractedParametersMatch(
        self, format_string: str, command: str, parameters: dict[str, Any]
    ) -> None:
        if format_string not in self.action_alias_db.get_format_strings():
            raise ValueError(f'Format string "{format_string}" is not available on the alias')
        self.assertEqual(extract_parameters(format_string, command), parameters)

    def _get_action_alias_db_by_name(self, name: str) -> Any:
        for file in sorted(Path(self._get_base_pack_path()).glob("aliases/*.y*ml")):
            alias = _loaded(file)
            if alias["name"] == name:
                return _Alias(**copy.deepcopy(alias))
        raise ValueError(f'Alias with name "{name}" not found')


@cache
def _loaded(file: Path) -> dict[str, Any]:
    """An alias file, read once: each test looks for its alias in all of them."""
    alias: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return alias


class _Alias(SimpleNamespace):
    """The keys of an alias file as attributes."""

    def get_format_strings(self) -> list[str]:
        return [text for item in self.formats for text in _representations(item)]


def _matches(format_str: str, command: str) -> bool:
    try:
        extract_parameters(format_str, command)
    except ParseException:
        return False
    return True


def _representations(item: Any) -> list[str]:
    """A format is a string, or a mapping with one or several strings under `representation`."""
    if isinstance(item, str):
        return [item]
    listed = item["representation"]
    return [listed] if isinstance(listed, str) else list(listed)
