# SPDX-License-Identifier: Apache-2.0
"""The catalogue of tunings, with the reason and the source of each value."""

from __future__ import annotations

from pathlib import Path

from docs.pages.markdown import code, items, page, paragraph, table
from edgetune.base.documents.plan import Guard
from edgetune.intent.tuning import SettingTemplate, Tuning, load_tuning


def tunings_page(root: Path) -> str:
    tunings = [load_tuning(path) for path in sorted((root / "tunings").glob("*.yaml"))]
    return page("tunings", summary=_summary(tunings), tunings="\n\n".join(map(_part, tunings)))


def _summary(tunings: list[Tuning]) -> str:
    rows = [(code(tuning.name), tuning.disruption, tuning.summary) for tuning in tunings]
    return table("tuning, disruption, what it does", rows)


def _part(tuning: Tuning) -> str:
    """One tuning: what it is for, and each value with its reason and source."""
    guards = ", ".join(map(_guard_of, tuning.guards)) or "none"
    facts = f"Hosts: {_audience_of(tuning)}. Intent: {_intent_of(tuning)}. Guards: {guards}."
    settings = items(map(_setting, tuning.settings))
    return "\n\n".join([f"## {tuning.name} {tuning.version}", paragraph(facts), settings])


def _setting(setting: SettingTemplate) -> str:
    what = f"{code(setting.id)}: {_value_of(setting)}, {_effect_of(setting)}"
    return f"{what}. {setting.why} Source: {setting.source}"


def _intent_of(tuning: Tuning) -> str:
    beyond = f" beyond{_margin(tuning.intent.margin)}" if tuning.intent.margin else ""
    return f"{code(tuning.intent.goal)} {code(tuning.intent.metric)}{beyond}"


def _guard_of(guard: Guard) -> str:
    absent = ", where it is measured" if guard.optional else ""
    return f"{code(guard.metric)}{_margin(guard.margin)}{absent}"


def _audience_of(tuning: Tuning) -> str:
    """Which hosts a tuning is for."""
    only = tuning.applies_to
    words = {
        "system": " or ".join(only.os),
        "kernel": f"{only.kernel} or newer" if only.kernel else "",
        "driver": " or ".join(code(name) for name in only.drivers),
        "CPU": " or ".join(only.cpu_vendors),
        "CPUs": f"at least {only.cpus}" if only.cpus else "",
        "NUMA nodes": f"at least {only.numa_nodes}" if only.numa_nodes else "",
    }
    return ", ".join(f"{name} {text}" for name, text in words.items() if text) or "all"


def _margin(margin: float) -> str:
    """A margin, which is a share, in percent."""
    return f" {margin * 100:g} %" if margin else ""


def _value_of(setting: SettingTemplate) -> str:
    if isinstance(setting.value, str):
        shown = code(setting.value)
    else:
        shown = code(", ".join(f"{key}: {part}" for key, part in setting.value.items()))
    if setting.only:
        shown += f" (only {setting.only})"
    return f"{shown} (where supported)" if setting.optional else shown


def _effect_of(setting: SettingTemplate) -> str:
    return f"{setting.disruption} of {setting.restart}" if setting.restart else setting.disruption
