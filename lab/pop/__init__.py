# SPDX-License-Identifier: Apache-2.0
"""A PoP to practise on: Linux hosts in namespaces, behind HAProxy, under load.

The hosts have their own network, init, sshd, nginx and settings; they really reboot, really drain
and really drop connections. Nothing of it is joined to the machine's own network, and nothing
outlives its supervisor: no process, no mount, no interface, no namespace. A lab that a program
starts ends with that program (`lab.lifeline`); one of `edgetune lab up` stays until `lab down`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .control import client_counts, down, enter_controller, power, set_load, status, up
    from .faults import (
        balancer,
        balancer_state,
        bmc_fault,
        boots,
        console,
        fill_disk,
        heal,
        inject,
        keep_busy,
        kill,
        set_link,
        set_monitoring,
        slow_link,
    )
    from .layout import LabError
    from .requirements import missing_packages, missing_requirements

__all__ = [
    "LabError",
    "balancer",
    "balancer_state",
    "bmc_fault",
    "boots",
    "client_counts",
    "console",
    "down",
    "enter_controller",
    "fill_disk",
    "heal",
    "inject",
    "keep_busy",
    "kill",
    "missing_packages",
    "missing_requirements",
    "power",
    "set_link",
    "set_load",
    "set_monitoring",
    "slow_link",
    "status",
    "up",
]

_PLACES = {
    "control": ("client_counts", "down", "enter_controller", "power", "set_load", "status", "up"),
    "layout": ("LabError",),
    "requirements": ("missing_packages", "missing_requirements"),
}


def __getattr__(name: str) -> Any:
    """Import what is asked for: each `edgetune` command imports this, and most need no lab."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place = next((place for place, names in _PLACES.items() if name in names), "faults")
    return getattr(import_module(f".{place}", __name__), name)
