# SPDX-License-Identifier: Apache-2.0
"""A PoP to practise on without root or Linux: hosts that are directories, reached over real SSH.

The host agent runs on them as it does on a server, but the kernel behind /proc and /sys, nginx,
the traffic and the load balancer are stand-ins. All of it is two processes of this user, and it
listens on loopback addresses only.
"""

from __future__ import annotations

from lab.pop.layout import LabError

from .control import down, enter_controller, heal, inject, missing_requirements, status, up

__all__ = [
    "LabError",
    "down",
    "enter_controller",
    "heal",
    "inject",
    "missing_requirements",
    "status",
    "up",
]
