# SPDX-License-Identifier: Apache-2.0
"""How long an interface gathers packets before it interrupts."""

from edgetune.agent.vocabulary.grammar import SWITCH, Parts, Whole
from edgetune.agent.vocabulary.kind import Kind
from edgetune.agent.vocabulary.targets import INTERFACE, touches_interface

SWITCHES = ("adaptive-rx", "adaptive-tx", "cqe-mode-rx", "cqe-mode-tx")

NUMBERS = (
    "stats-block-usecs",
    "sample-interval",
    "pkt-rate-low",
    "pkt-rate-high",
    *(
        f"{side}-{what}{when}"
        for side in ("rx", "tx")
        for what, when in (
            ("usecs", ""),
            ("frames", ""),
            ("usecs", "-irq"),
            ("frames", "-irq"),
            ("usecs", "-low"),
            ("frame", "-low"),
            ("usecs", "-high"),
            ("frame", "-high"),
        )
    ),
    "tx-aggr-max-bytes",
    "tx-aggr-max-frames",
    "tx-aggr-time-usecs",
)

KIND = Kind(
    name="nic.coalesce",
    target={"interface": INTERFACE},
    value=Parts({**dict.fromkeys(SWITCHES, SWITCH), **dict.fromkeys(NUMBERS, Whole(0, 2**32 - 1))}),
    touches=touches_interface,
    # Of the drivers we know only ixgbe starts the interface anew, where LRO comes or goes with it.
    disruption="live",
    order=70,
    summary="How long an interface gathers packets before it interrupts: names as `ethtool -C` has "
    "them.",
    takes="Names of `ethtool -C`. `adaptive-rx`, `adaptive-tx`, `cqe-mode-rx` and `cqe-mode-tx` "
    "are `on` or `off`; each other one is a number.",
    example={"interface": "*", "value": {"adaptive-rx": "off", "rx-usecs": 100}},
)
