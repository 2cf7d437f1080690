# SPDX-License-Identifier: Apache-2.0
"""How `loader.tunable` is tried."""

from __future__ import annotations

from tests.kernels import GRACE
from tests.trials import Trial

TRIAL = Trial(
    target={"tunable": "hw.ix.rxd"},
    taken=["4096", "1"],
    refused=["", '"1"', "a b", "1\n2"],
    settings=lambda build: [],
    asks=GRACE,
)
