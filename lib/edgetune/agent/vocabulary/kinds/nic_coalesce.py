# SPDX-License-Identifier: Apache-2.0
"""How long an interface gathers packets before it interrupts."""

from edgetune.agent.vocabulary.grammar import SWITCH, Parts, Whole
from edgetune.agent.vocabulary.kind import INTERFACE, Kind

SWITCHES = {"adaptive-rx": 11, "adaptive-tx": 12, "cqe-mode-rx": 25, "cqe-mode-tx": 24}
NUMBERS = {
    "stats-block-usecs": 10,
    "sample-interval": 23,
    "pkt-rate-low": 13,
    "pkt-rate-high": 18,
    "rx-usecs": 2,
    "rx-frames": 3,
    "rx-usecs-irq": 4,
    "rx-frames-irq": 5,
    "rx-usecs-low": 14,
    "rx-frame-low": 15,
    "rx-usecs-high": 19,
    "rx-frame-high": 20,
    "tx-usecs": 6,
    "tx-frames": 7,
    "tx-usecs-irq": 8,
    "tx-frames-irq": 9,
    "tx-usecs-low": 16,
    "tx-frame-low": 17,
    "tx-usecs-high": 21,
    "tx-frame-high": 22,
    "tx-aggr-max-bytes": 26,
    "tx-aggr-max-frames": 27,
    "tx-aggr-time-usecs": 28,
}
"""The names of ``ethtool -C``, with the attributes of the kernel (ethtool_netlink.h)."""

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
