# SPDX-License-Identifier: Apache-2.0
"""Settings that every make names in its own way, looked up in ``logical.yaml``."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Optional

from edgetune.base.dataclass import dataclass
from edgetune.base.files import load_yaml
from edgetune.net.bmc.payload import BmcError, said
from edgetune.net.bmc.registry import Registry

_FILE = Path(__file__).with_name("logical.yaml")
_Modes = Mapping[str, Mapping[str, Sequence[Optional[str]]]]


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
            found = {mode: _on_machine(modes[mode], names, current, registry) for mode in modes}
            return Knob(make.machines, {m: wanted for m, wanted in found.items() if wanted})
    raise BmcError("refused", _nothing(registry, cpu))


@functools.cache
def _makes() -> Mapping[str, Sequence[_Make]]:
    return {kind: [_Make(**make) for make in makes] for kind, makes in load_yaml(_FILE).items()}


def _leading(modes: _Modes) -> str:
    return next(iter(next(iter(modes.values()))))


def _names(
    named: Mapping[str, str], current: Mapping[str, object], registry: Registry | None
) -> dict[str, str]:
    """The attributes that have such a displayed name, if it is exactly one each."""
    found = {}
    for name, pattern in named.items():
        there = [n for n in (registry.displayed(pattern) if registry else []) if n in current]
        if len(there) == 1:
            found[name] = there[0]
    return found


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


def _nothing(registry: Registry | None, cpu: str) -> str:
    offered = registry.offers("snoop") if registry else ""
    if offered:
        return f"no attribute of this machine is known to set it; its registry lists {offered}"
    after = " (CPUs after the Xeon E5 v4 have no choice)" if "Xeon" in cpu else ""
    return f"this machine has no such setting{after}"
