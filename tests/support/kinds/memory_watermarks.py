# SPDX-License-Identifier: Apache-2.0
"""How `memory.watermarks` is tried."""

from __future__ import annotations

from tests.support.trials import Trial, any_of

VALUES = {
    "min_free_kbytes": ("30000", "1048576", "99999999"),
    "watermark_scale_factor": ("5", "40"),
    "watermark_boost_factor": ("0", "20000"),
}
NOW = {"min_free_kbytes": 67584, "watermark_scale_factor": 10, "watermark_boost_factor": 15000}

TRIAL = Trial(
    target={"parameter": "min_free_kbytes"},
    taken=["1024"],
    refused=["1 %", "1023"],
    settings=lambda build: [
        any_of("memory.watermarks", {"parameter": name}, *values) for name, values in VALUES.items()
    ],
    files=lambda build: {f"proc/sys/vm/{name}": f"{number}\n" for name, number in NOW.items()},
    file=".*/watermark_",
)
