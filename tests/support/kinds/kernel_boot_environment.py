# SPDX-License-Identifier: Apache-2.0
"""How `kernel.boot_environment` is tried."""

from __future__ import annotations

from tests.support.kernels import GRACE
from tests.support.trials import Trial

TRIAL = Trial(
    target={},
    taken=["new", "14.1-p6"],
    refused=["", "a b", "new@snap", "-t"],
    settings=lambda build: [],
    call="bectl activate ",
    asks=GRACE,
)
