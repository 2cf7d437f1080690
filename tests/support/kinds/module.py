# SPDX-License-Identifier: Apache-2.0
"""How `module` is tried."""

from __future__ import annotations

from tests.support.trials import Trial

TRIAL = Trial(
    target={"module": "tcp_rack"},
    taken=["loaded"],
    refused=["absent", "", "on"],
    settings=lambda build: [],
    call="kldload ",
)
