# SPDX-License-Identifier: Apache-2.0
"""How `route.metric` is tried."""

from __future__ import annotations

from tests.support.trials import Trial, any_of

ROUTE = {"family": "inet", "route": "default"}

TRIAL = Trial(
    target=ROUTE,
    taken=[{"initcwnd": 20, "initrwnd": 1}, {"quickack": 0, "congctl": "bbr"}],
    refused=[{}, {"initcwnd": 0}, {"quickack": 2}, {"congctl": "BBR"}, {"mtu": 1500}],
    settings=lambda build: [
        any_of(
            "route.metric",
            ROUTE,
            {"initcwnd": 30},
            {"initcwnd": 20, "initrwnd": 40},
            {"congctl": "bbr", "quickack": 1},
            {"congctl": "vegas"},
        )
    ],
    call="ip .* change ",
)
