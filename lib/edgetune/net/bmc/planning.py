# SPDX-License-Identifier: Apache-2.0
"""What a tuning would do to the BIOS of one machine."""

from __future__ import annotations

from dataclasses import field

from edgetune.agent.vocabulary.kinds.bios_attribute import KIND
from edgetune.agent.vocabulary.setting import Setting
from edgetune.base.dataclass import dataclass
from edgetune.net.bmc.answers import Answer
from edgetune.net.bmc.bios import NO_SETTINGS, Bios, State
from edgetune.net.bmc.client import Client
from edgetune.net.bmc.logical import find_knob
from edgetune.net.bmc.payload import BmcError, is_secret, same, text_at, text_of
from edgetune.net.bmc.registry import Registry
from edgetune.net.bmc.request import Request, Values
from edgetune.net.bmc.reset import facts

MISSING = (
    "the BMC has no registry of the attributes (registry missing), and nothing is set unchecked"
)


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
    settings = [Setting.of(own) for own in request.settings]
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
