# SPDX-License-Identifier: Apache-2.0
"""How `loader.tunable` is tried."""

from __future__ import annotations

from tests.support.kernels import GRACE
from tests.support.trials import Trial

TRIAL = Trial(
    target={"tunable": "hw.ix.rxd"},
    taken=["4096", "1"],
    refused=["", '"1"', "a b", "1\n2"],
    settings=lambda build: [],
    asks=GRACE,
)
