# SPDX-License-Identifier: Apache-2.0
"""Whole machines that others recorded; ``fixtures/redfish/README.md`` says who."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from edgetune.net.bmc.answers import Answer, Request, ladder
from edgetune.net.bmc.bios import Bios
from edgetune.net.bmc.client import Client
from edgetune.net.bmc.machine import evidence, facts
from edgetune.net.bmc.payload import BmcError, list_at, text_at
from edgetune.net.bmc.planning import find_knob, plan
from edgetune.net.bmc.registry import Registry
from edgetune.net.bmc.system import find_system, in_post, managers
from tests.support import FIXTURES

MACHINES = FIXTURES / "redfish" / "machines"
NAMES = sorted(path.stem for path in MACHINES.glob("*.json"))
# Of several systems behind one BMC, the one to ask about.
SYSTEMS = {
    "hpe_cray_ex425": "Node0",
    "nvidia_dgxh100": "DGX",
    "nvidia_gb200": "System_0",
}


class Recorded(Client):
    """A conversation with a machine of a file; makers spell their links with and without a /.

    ``missing`` are the links asked for that lead to no page, and ``sent`` the changes, which are
    all refused.
    """

    def __init__(self, name: str) -> None:
        text = (MACHINES / f"{name}.json").read_text(encoding="utf-8")
        self.pages = {_spelt(link): data for link, data in json.loads(text).items()}
        self.missing: list[str] = []
        self.sent: list[tuple[str, str, Any]] = []
        self.root = self.pages["/redfish/v1"]
        self._ahead, self._exchange, self._has_enough = {}, SimpleNamespace(took=1.0), False
        self.system = find_system(self, SYSTEMS.get(name, ""))

    def without_secrets(self, text: str) -> str:
        return text

    def _find(self, link: str, *how: Any, **more: Any) -> Answer | None:
        data = self.pages.get(_spelt(link))
        if data is None:
            self.missing.append(link)
            return None
        return Answer(link, 200, {}, data)

    def change(
        self,
        method: str,
        link: str,
        body: Mapping[str, Any] | None = None,
        etag: str | None = None,
    ) -> Answer:
        self.sent.append((method, link, body))
        raise BmcError("refused", "a recording takes no change")


def _spelt(link: str) -> str:
    return link.partition("?")[0].rstrip("/").lower()


@dataclass(frozen=True)
class Abilities:
    """What can be done with a machine, as the client finds it, in words for people."""

    model: str
    bmc: str
    bios: str
    settable: str
    in_force: str
    restarts: str
    snoop: str
    boot: str
    events: str


def abilities(name: str) -> Abilities:
    machine = Recorded(name)
    system = machine.system
    told: Any = evidence(machine, system, Request())
    known: Any = facts(machine, system, Request())
    bios, settable, in_force, modes = _bios(machine)
    return Abilities(
        model=_model(machine),
        bmc=_bmc(machine),
        bios=bios,
        settable=settable,
        in_force=in_force,
        restarts=", ".join(ladder(known["resets"], force=True)) or "none",
        snoop=modes,
        boot=(told["boot_progress"] or "no") + " (POST)" * in_post(system),
        events="yes" if told["events"] else told["unread"] or "empty",
    )


def _model(machine: Recorded) -> str:
    root, data = machine.root, machine.system.data
    maker = text_at(data, "Manufacturer") or text_at(root, "Vendor")
    # HPE's emulator adds that to the models of real machines.
    model = re.sub(" -+ SIMULATED$", "", text_at(data, "Model") or text_at(root, "Product"))
    parts = ("" if model.startswith(maker) else maker, model, text_at(data, "BiosVersion"))
    return " ".join(filter(None, parts)) or "not told"


def _bmc(machine: Recorded) -> str:
    for manager in managers(machine, machine.system):
        model, firmware = (text_at(manager.data, name) for name in ("Model", "FirmwareVersion"))
        if firmware:
            return firmware if firmware.startswith(model) else f"{model} {firmware}"
    return "not told"


def _bios(machine: Recorded) -> tuple[str, str, str, str]:
    """Whether it is shown, can be set, what brings it into force, and the snoop modes."""
    try:
        bios = Bios(machine, machine.system)
        state = bios.read()
    except BmcError as error:
        return f"no: {error}", "no", "", "no"
    registry = bios.registry(state)
    try:
        knob = find_knob("bios.snoop_mode", state.current, registry)
        modes = ", ".join(knob.modes)
    except BmcError:
        modes = "no"
    reason = _why_not(machine, state.current, registry)
    if reason:
        return "yes", f"no: {reason}", "", modes
    times = list_at(state.bios.data, "@Redfish.Settings", "SupportedApplyTimes")
    how = "job" if bios.jobs.are_listed else "apply time" if times else "plain"
    return "yes", "yes", how, modes


def _why_not(
    machine: Recorded, current: Mapping[str, Any], registry: Registry | None
) -> str | None:
    """Why no attribute can be given another of its values, or None if one can."""
    reason = None
    for name in current:
        for value in registry.values(name) if registry else ["another"]:
            wanted = {
                "id": name,
                "kind": "bios.attribute",
                "target": {"attribute": name},
                "value": value,
            }
            asked = Request(settings=[wanted])
            told: Any = plan(machine, machine.system, asked)
            (row,) = told["settings"]
            if row["status"] == "change":
                return None
            reason = row["reason"] or reason
    return reason
