# SPDX-License-Identifier: Apache-2.0
"""How `service.property` is tried."""

from __future__ import annotations

from tests.support.trials import NGINX, Trial, any_of, of_nginx

TRIAL = Trial(
    target={**NGINX, "property": "LimitNOFILE"},
    taken=["65536", "infinity", "0-3"],
    refused=["", "1\n2", "1\\"],
    settings=lambda build: [
        of_nginx(any_of("service.property", {**NGINX, "property": name}, *values))
        for name, values in {
            "LimitNOFILE": ("512", "65536"),
            "CPUAffinity": ("1-3", "0"),
            "Nice": ("-5",),
        }.items()
    ],
)
