# SPDX-License-Identifier: Apache-2.0
"""A tuning as it is on one host: which settings it has there, and their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from edgetune.agent.vocabulary.grammar import Wrong
from edgetune.agent.vocabulary.kinds import KINDS
from edgetune.base.documents.host import HostFacts
from edgetune.base.documents.reading import taken
from edgetune.base.documents.settings import HostSetting
from edgetune.base.errors import InputError
from edgetune.intent.tuning import EACH, SettingTemplate, Tuning, is_expression

Facts = Mapping[str, object]
"""What a host's agent answers to ``facts``, all of it, by the names that expressions have."""


def render(tuning: Tuning, facts: Facts) -> list[HostSetting]:
    """The settings for one host.

    A part of a value whose expression comes to nothing is left out.
    InputError names the value whose expression does not fit the facts.
    """
    known = taken(HostFacts, facts)
    return [
        _render_setting(setting, target, facts)
        for setting in tuning.settings
        for target in _targets(tuning, setting, known)
    ]


def misfits(tuning: Tuning, facts: Facts) -> list[str]:
    """Why a tuning is not for the host with these facts; empty when it is."""
    known = taken(HostFacts, facts)
    foreign = [
        f"{setting.where}.kind: {why}"
        for setting in tuning.settings
        if not setting.optional and (why := KINDS[setting.kind].refusal_on(known.system))
    ]
    if foreign:
        return foreign
    targets = [target for setting in tuning.settings for target in _targets(tuning, setting, known)]
    interfaces = sorted({*filter(None, (target.get("interface") for target in targets))})
    is_each = any(setting.target.get("interface") == EACH for setting in tuning.settings)
    if is_each and not interfaces:
        drivers = " or ".join(tuning.applies_to.drivers)
        return ["no interface is up" + (f" and has the driver {drivers}" if drivers else "")]
    return [*tuning.applies_to.problems(known, interfaces)]


def _targets(
    tuning: Tuning, setting: SettingTemplate, facts: HostFacts
) -> Iterator[Mapping[str, str]]:
    if setting.target.get("interface") != EACH:
        yield setting.target
        return
    drivers = tuning.applies_to.drivers
    for name, nic in facts.nics.items():
        if nic.up and (not drivers or nic.driver in drivers):
            yield {**setting.target, "interface": name}


def _render_setting(
    setting: SettingTemplate, target: Mapping[str, str], facts: Facts
) -> HostSetting:
    nics = facts.get("nics")
    nic = nics.get(target.get("interface")) if isinstance(nics, Mapping) else None
    names = {**facts, "nic": nic}
    kind = KINDS[setting.kind]
    made: object
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
    id, only, restart = kind.id_of(target), setting.only, setting.restart
    return HostSetting(id, setting.kind, {**target}, value, only, restart)


def _work_out(text: str, names: Facts, where: str) -> str:
    if not is_expression(text):
        return text
    # Jinja is imported where a tuning needs it.
    from edgetune.intent.expressions import work_out

    try:
        return work_out(text, names)
    except ValueError as error:
        raise InputError(where, None, f"does not fit the host's facts: {error}") from None
