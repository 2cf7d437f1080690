# SPDX-License-Identifier: Apache-2.0
"""BMCs to practise on: one process answers Redfish for many systems, standard library only."""

from __future__ import annotations

from .machine import FAULTS, Machine
from .server import Server, serve
from .service import Service

__all__ = ["FAULTS", "Machine", "Server", "Service", "serve"]
