# SPDX-License-Identifier: Apache-2.0
"""What a tuning would do to the BIOS of one machine.

Settings that every make names in its own way are looked up in ``logical.yaml``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Optional

from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.bios_attribute import KIND
from edgetune.base.dataclass import dataclass
from edgetune.base.files import load_yaml
from edgetune.net.bmc.answers import Answer, Request, Values
from edgetune.net.bmc.bios import NO_SETTINGS, Bios, State
from edgetune.net.bmc.client import Client
from edgetune.net.bmc.machine import facts
from edgetune.net.bmc.payload import BmcError, is_secret, said, same, text_at, text_of
from edgetune.net.bmc.registry import Registry

MISSING = (
    "the BMC has no registry of the attributes (registry missing), and nothing is set unchecked"
)

_FILE = Path(__file__).with_name("logical.yaml")
_Modes = Mapping[str, Mapping[str, Sequence[Optional[str]]]]


@dataclass(frozen=True)
class _Reading:
    """A setting on this machine: what it is, what the next boot makes of it, what it shall be."""

    runtime: str | None
    persistent: str | None
    wanted: Values = field(default_factory=dict)
    unsupported: str | None = None


def plan(client: Client, system: Answer, request: Request) -> dict[str, object]:
    """A row for each of ``settings``; BmcError ``refused`` if more than ``ours`` would come."""
    bios = Bios(client, system)
    bios.read_ahead(planning=True)
    state = bios.read()
    state.refuse_foreign(request.ours)
    bios.refuse_foreign_jobs()
    registry = bios.registry(state)
    cpu = text_at(system.data, "ProcessorSummary", "Model")
    settings = [Setting.of(row) for row in request.settings]
    readings = [_read(setting, state, registry, cpu) for setting in settings]
    return {
        **facts(client, system, request),
        "bios_version": text_at(system.data, "BiosVersion"),
        "attributes": {n: v for n, v in state.current.items() if not _is_secret(n, registry)},
        "settings": [
            _row(setting, reading, state, _trouble(reading, readings, state, registry))
            for setting, reading in zip(settings, readings)
        ],
    }


def _read(setting: Setting, state: State, registry: Registry | None, cpu: str) -> _Reading:
    after = {**state.current, **state.pending}
    if setting.kind == KIND.name:
        return _read_attribute(setting, state, after, registry)
    try:
        knob = find_knob(setting.kind, state.current, registry, cpu)
    except BmcError as error:
        return _Reading(None, None, unsupported=str(error))
    now, then, mode = knob.mode_of(state.current), knob.mode_of(after), str(setting.value)
    if mode not in knob.modes:
        can = ", ".join(knob.modes) or "nothing"
        return _Reading(now, then, unsupported=f"{knob.machines}: this machine offers {can}")
    return _Reading(now, then, knob.modes[mode])


def _read_attribute(
    setting: Setting, state: State, after: Values, registry: Registry | None
) -> _Reading:
    name, value = setting.target["attribute"], setting.value
    if is_secret(name):
        return _Reading(None, None, unsupported="passwords are not set here")
    if name not in state.current:
        offered = registry.offers(f"^{name}$") if registry else ""
        text = f"; its registry lists {offered}, but that is for other machines" if offered else ""
        return _Reading(None, None, unsupported=f"this machine has no attribute {name}{text}")
    now = state.current[name]
    typed = now if same(value, now) else registry.typed(name, value) if registry else value
    return _Reading(text_of(now), text_of(after[name]), {name: typed})


def _trouble(
    reading: _Reading, readings: list[_Reading], state: State, registry: Registry | None
) -> str | None:
    """Why what is to be changed cannot be, or None."""
    if reading.unsupported or _stands(reading, state):
        return reading.unsupported
    if state.settings is None:
        return NO_SETTINGS
    if registry is None:
        return MISSING
    others = dict(state.pending)
    for other in readings:
        others.update(other.wanted)
    derived = registry.derived(others, state.current)
    for name in reading.wanted:
        del others[name]
    return registry.problem(reading.wanted, state.current, others, derived)


def _row(
    setting: Setting, reading: _Reading, state: State, trouble: str | None
) -> dict[str, object]:
    status = "noop" if _stands(reading, state) else "change"
    return {
        "id": setting.id,
        "status": "unsupported" if trouble else status,
        "runtime": reading.runtime,
        "persistent": reading.persistent,
        "wanted": setting.value,
        "reason": trouble,
        "attributes": {
            name: {
                "current": state.current.get(name),
                "pending": state.pending.get(name),
                "wanted": value,
            }
            for name, value in reading.wanted.items()
        },
    }


def _stands(reading: _Reading, state: State) -> bool:
    now = all(same(state.current.get(name), value) for name, value in reading.wanted.items())
    return now and state.fits(reading.wanted)


def _is_secret(name: str, registry: Registry | None) -> bool:
    by_type = registry is not None and registry.is_secret(name)
    return by_type or is_secret(name)


@dataclass(frozen=True)
class Knob:
    """A logical setting on one machine: the attributes and values of each of its modes."""

    machines: str
    modes: Mapping[str, Mapping[str, str]]

    def mode_of(self, values: Mapping[str, object]) -> str:
        """The mode that these attributes amount to, or they themselves if it is none."""
        for mode, wanted in self.modes.items():
            if all(values.get(name) == value for name, value in wanted.items()):
                return mode
        names = dict.fromkeys(name for wanted in self.modes.values() for name in wanted)
        return ", ".join(f"{name}={said(values.get(name))}" for name in names)


@dataclass(frozen=True)
class _Make:
    """How some machines have a setting; ``named`` are attributes by their displayed names."""

    machines: str
    modes: _Modes
    named: Mapping[str, str] = field(default_factory=dict)


def find_knob(
    kind: str, current: Mapping[str, object], registry: Registry | None, cpu: str = ""
) -> Knob:
    """The setting on a machine with these attributes; BmcError ``refused`` says what it offers.

    ``cpu`` is the model of its processors, as its BMC names it.
    """
    for make in _makes()[kind]:
        names, modes = _names(make.named, current, registry), make.modes
        if names.get(_leading(modes), _leading(modes)) in current:
            values = {mode: _on_machine(modes[mode], names, current, registry) for mode in modes}
            return Knob(make.machines, {m: wanted for m, wanted in values.items() if wanted})
    offered = registry.offers("snoop") if registry else ""
    if offered:
        problem = f"no attribute of this machine is known to set it; its registry lists {offered}"
        raise BmcError("refused", problem)
    after = " (CPUs after the Xeon E5 v4 have no choice)" if "Xeon" in cpu else ""
    raise BmcError("refused", f"this machine has no such setting{after}")


@functools.cache
def _makes() -> Mapping[str, Sequence[_Make]]:
    return {kind: [_Make(**make) for make in makes] for kind, makes in load_yaml(_FILE).items()}


def _leading(modes: _Modes) -> str:
    return next(iter(next(iter(modes.values()))))


def _names(
    named: Mapping[str, str], current: Mapping[str, object], registry: Registry | None
) -> dict[str, str]:
    """The attributes that have such a displayed name, if it is exactly one each."""
    names = {}
    for name, pattern in named.items():
        there = [n for n in (registry.displayed(pattern) if registry else []) if n in current]
        if len(there) == 1:
            names[name] = there[0]
    return names


def _on_machine(
    wanted: Mapping[str, Sequence[str | None]],
    names: Mapping[str, str],
    current: Mapping[str, object],
    registry: Registry | None,
) -> dict[str, str]:
    """The attributes and values of a mode; empty if this machine cannot have it."""
    chosen = {}
    for name, candidates in wanted.items():
        attribute = names.get(name, name)
        if attribute not in current and None in candidates:
            continue
        value = _first(filter(None, candidates), attribute, name in names, current, registry)
        if attribute not in current or value is None:
            return {}
        chosen[attribute] = value
    return chosen


def _first(
    candidates: Iterable[str],
    attribute: str,
    by_display: bool,
    current: Mapping[str, object],
    registry: Registry | None,
) -> str | None:
    listed = list(candidates)
    if registry is None:
        return str(current[attribute]) if current.get(attribute) in listed else listed[0]
    allowed = registry.values(attribute)
    for candidate in listed:
        for value, display in allowed.items():
            if candidate == value or (by_display and candidate == display):
                return value
    return None
