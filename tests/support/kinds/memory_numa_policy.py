# SPDX-License-Identifier: Apache-2.0
"""How `memory.numa_policy` is tried."""

from __future__ import annotations

from tests.support.trials import NGINX, Trial, any_of, of_nginx

TRIAL = Trial(
    target=NGINX,
    taken=["interleave", "local", "default", "preferred:1", "bind:0-1,3"],
    refused=["preferred", "bind:", "spread"],
    settings=lambda build: [
        of_nginx(any_of("memory.numa_policy", NGINX, "interleave", "bind:1", "local"))
    ],
)
