# SPDX-License-Identifier: Apache-2.0
"""A tuning as it is on one host: which settings it has there, and their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from edgetune.errors import InputError
from edgetune.tuning import EACH, SettingTemplate, Tuning, is_expression
from edgetune.vocabulary.grammar import Wrong
from edgetune.vocabulary.kinds import KINDS
from edgetune.vocabulary.setting import Setting


def render(tuning: Tuning, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The settings for one host, in the form the host agent takes.

    A part of a value whose expression comes to nothing is left out.
    InputError names the value whose expression does not fit the facts.
    """
    return [
        _render_setting(setting, target, facts)
        for setting in tuning.settings
        for target in _targets(tuning, setting, facts)
    ]


def misfits(tuning: Tuning, facts: Mapping[str, Any]) -> list[str]:
    """Why a tuning is not for the host with these facts; empty when it is."""
    targets = [target for own in tuning.settings for target in _targets(tuning, own, facts)]
    interfaces = sorted({target["interface"] for target in targets if "interface" in target})
    each = any(own.target.get("interface") == EACH for own in tuning.settings)
    if each and not interfaces:
        drivers = " or ".join(tuning.applies_to.drivers)
        return ["no interface is up" + (f" and has the driver {drivers}" if drivers else "")]
    return tuning.applies_to.problems(facts, interfaces)


def _targets(
    tuning: Tuning, setting: SettingTemplate, facts: Mapping[str, Any]
) -> Iterator[Mapping[str, str]]:
    if setting.target.get("interface") != EACH:
        yield setting.target
        return
    drivers = tuning.applies_to.drivers
    for name, nic in facts["nics"].items():
        if nic.get("up", True) and (not drivers or nic.get("driver") in drivers):
            yield {**setting.target, "interface": name}


def _render_setting(
    setting: SettingTemplate, target: Mapping[str, str], facts: Mapping[str, Any]
) -> dict[str, Any]:
    names = dict(facts, nic=facts.get("nics", {}).get(target.get("interface")))
    kind = KINDS[setting.kind]
    made: Any
    if isinstance(setting.value, str):
        made = _work_out(setting.value, names, f"{setting.where}.value")
    else:
        texts = {
            key: _work_out(str(part), names, f"{setting.where}.value.{key}")
            for key, part in setting.value.items()
        }
        made = {key: text for key, text in texts.items() if text or not setting.value[key]}
    try:
        value = kind.of_text(target, made)
    except Wrong as wrong:
        raise InputError(f"{setting.where}.value", wrong.part or None, str(wrong)) from None
    return Setting(setting.kind, target, value, setting.only, setting.restart).document()


def _work_out(text: str, names: Mapping[str, Any], where: str) -> str:
    if not is_expression(text):
        return text
    # Jinja is imported where a tuning needs it.
    from edgetune.expressions import work_out

    try:
        return work_out(text, names)
    except ValueError as error:
        raise InputError(where, None, f"does not fit the host's facts: {error}") from None
