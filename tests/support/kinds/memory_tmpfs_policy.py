# SPDX-License-Identifier: Apache-2.0
"""How `memory.tmpfs_policy` is tried."""

from __future__ import annotations

from tests.support.trials import CACHE, Trial, any_of

TRIAL = Trial(
    target={"mount": CACHE},
    taken=["interleave", "interleave:0-1", "bind:0", "prefer:1", "local"],
    refused=["default", "bind", "bind:0,1"],
    settings=lambda build: [
        any_of("memory.tmpfs_policy", {"mount": CACHE}, "interleave", "bind:0", "bind:1", "local")
    ],
    call="mount ",
)
