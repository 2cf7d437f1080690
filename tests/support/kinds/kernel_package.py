# SPDX-License-Identifier: Apache-2.0
"""How `kernel.package` is tried."""

from __future__ import annotations

from tests.support.kernels import GRACE
from tests.support.trials import Trial, any_of

NEW = {"package": "linux-image-6.1.0-41-amd64", "version": "6.1.158-1"}

TRIAL = Trial(
    target={},
    taken=[NEW, {"version": "6.12.0-55.9.1.el10_0", "package": "kernel-core"}],
    refused=[
        {},
        {"package": "linux-image-6.1.0-41-amd64"},
        {"version": "1"},
        {**NEW, "version": "newest"},
        {**NEW, "package": "-o"},
        {**NEW, "arch": "amd64"},
    ],
    settings=lambda build: [any_of("kernel.package", {}, NEW)],
    call="apt-get .*install",
    asks=GRACE,
)
