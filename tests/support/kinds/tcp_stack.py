# SPDX-License-Identifier: Apache-2.0
"""How `tcp.stack` is tried."""

from __future__ import annotations

from tests.support.trials import Trial

TRIAL = Trial(
    target={},
    taken=["freebsd", "rack"],
    refused=["", "Rack", "a b"],
    settings=lambda build: [],
    call="sysctl net.inet.tcp.functions_default=",
)
