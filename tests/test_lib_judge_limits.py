# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from edgetune.judge.limits import beyond_limits


@pytest.mark.parametrize(
    ("own", "baseline", "says"),
    [
        (None, 1.0, "does not answer"),
        ({"health_failed": 0.6, "health_p50_ms": None}, 1.0, "fails 60% of its health checks"),
        ({"health_failed": 0, "health_p50_ms": 400.0}, 2.0, "answers in 400 ms, 2.0 ms is usual"),
        ({"health_failed": 0, "health_p50_ms": 400.0}, 100.0, ""),
        ({"health_failed": 0, "health_p50_ms": 40.0}, 0.5, ""),
    ],
)
def test_hard_limits(own: Any, baseline: float, says: str) -> None:
    others = [{"health_p50_ms": 1.0}, {"health_p50_ms": 2.0}, {"health_p50_ms": None}]
    assert beyond_limits(own, baseline, others) == says
