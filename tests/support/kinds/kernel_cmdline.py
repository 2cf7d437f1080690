# SPDX-License-Identifier: Apache-2.0
"""How `kernel.cmdline` is tried."""

from __future__ import annotations

from tests.support.kernels import GRACE
from tests.support.trials import Trial, any_of

TARGET = {"parameter": "mitigations"}

TRIAL = Trial(
    target=TARGET,
    taken=["mitigations=off", "", "mitigations", 'mitigations="a b"', "mitigations mitigations=b"],
    refused=["off", "mitigations=off quiet", 'mitigations="off', "mitigations=$x"],
    settings=lambda build: [any_of("kernel.cmdline", TARGET, "mitigations=off", "")],
    call="grub-reboot ",
    asks=GRACE,
)
