# SPDX-License-Identifier: Apache-2.0
"""What ``ansible-inventory --list`` prints, in a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Callable

from tests.support.inventories import Begin, TestInventory, overlay

FIELDS = {
    "server_address": "edgetune_server_address",
    "bmc.credentials": "bmc_credentials",
    "bmc.system": "bmc_system",
}
_VARIABLES = {
    "address": "ansible_host",
    "port": "ansible_port",
    "rack": "edgetune_rack",
    "hardware": "edgetune_hardware",
    "server": "edgetune_server",
    "server_address": "edgetune_server_address",
}


class Printed(TestInventory):
    """Groups by PoP, hosts with their variables; the overlay has all else."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ansible.yaml"
        self._printed = folder / "inventory.json"

    def keep(self, pops: Mapping[str, Any]) -> None:
        source = {"file": str(self._printed), "pop_prefix": "pop_", "fields": FIELDS}
        overlay(self.path, pops, source)
        variables = {
            host: self._variables(own)
            for entry in pops.values()
            for host, own in entry["hosts"].items()
        }
        groups = {f"pop_{name}": {"hosts": [*entry["hosts"]]} for name, entry in pops.items()}
        every = {"all": {"children": [*groups, "ungrouped"]}}
        self.print_({"_meta": {"hostvars": variables}, **every, **groups})

    def print_(self, groups: Mapping[str, Any]) -> None:
        self._printed.write_text(json.dumps(groups), encoding="utf-8")

    def damages(self) -> Mapping[str, Callable[[], None]]:
        return {
            "gone": self._printed.unlink,
            "cut off": lambda: self._printed.write_text(self._printed.read_text()[:-20]),
            "no variables": lambda: self.print_({"all": {"hosts": ["e000"]}}),
            "a list of one host": lambda: self.print_(
                {"_meta": {"hostvars": {}}, "pop_lab1": {"hosts": "e000"}}
            ),
            "no overlay": self.path.unlink,
        }

    @staticmethod
    def _variables(host: Mapping[str, Any]) -> dict[str, Any]:
        own = {_VARIABLES[name]: value for name, value in host.items() if name in _VARIABLES}
        bmc = host.get("bmc", {})
        found = {"edgetune_bmc": bmc.get("address")} if bmc else {}
        found.update({f"bmc_{name}": value for name, value in bmc.items() if name != "address"})
        # Without one, Ansible goes to the name of the host.
        return {"ansible_host": None, **own, **found}


KEPT: Mapping[str, Begin] = {"printed": lambda folder: nullcontext(Printed(folder))}
