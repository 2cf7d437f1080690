# SPDX-License-Identifier: Apache-2.0
"""How long an interface gathers packets before it interrupts."""

from edgetune.agent.vocabulary.grammar import SWITCH, Parts, Whole
from edgetune.agent.vocabulary.kind import INTERFACE, Kind

SWITCHES = ("adaptive-rx", "adaptive-tx", "cqe-mode-rx", "cqe-mode-tx")
NUMBERS = (
    "stats-block-usecs",
    "sample-interval",
    "pkt-rate-low",
    "pkt-rate-high",
    "rx-usecs",
    "rx-frames",
    "rx-usecs-irq",
    "rx-frames-irq",
    "rx-usecs-low",
    "rx-frame-low",
    "rx-usecs-high",
    "rx-frame-high",
    "tx-usecs",
    "tx-frames",
    "tx-usecs-irq",
    "tx-frames-irq",
    "tx-usecs-low",
    "tx-frame-low",
    "tx-usecs-high",
    "tx-frame-high",
    "tx-aggr-max-bytes",
    "tx-aggr-max-frames",
    "tx-aggr-time-usecs",
)
"""The names of ``ethtool -C``, those that are on or off and those that are numbers."""

KIND = Kind(
    name="nic.coalesce",
    target={"interface": INTERFACE},
    value=Parts({**dict.fromkeys(SWITCHES, SWITCH), **dict.fromkeys(NUMBERS, Whole(0, 2**32 - 1))}),
    # Of the drivers we know only ixgbe starts the interface anew, where LRO comes or goes with it.
    disruption="live",
    order=70,
    ordered=True,
    summary="How long an interface gathers packets before it interrupts: names as `ethtool -C` has "
    "them.",
    takes="Names of `ethtool -C`. `adaptive-rx`, `adaptive-tx`, `cqe-mode-rx` and `cqe-mode-tx` "
    "are `on` or `off`; each other one is a number.",
    example={"interface": "*", "value": {"adaptive-rx": "off", "rx-usecs": 100}},
)
