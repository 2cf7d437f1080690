# SPDX-License-Identifier: Apache-2.0
"""Flows steered to the CPU that reads them (RFS)."""

from edgetune.agent.vocabulary.grammar import Text
from edgetune.agent.vocabulary.kind import INTERFACE, Kind, parameter
from edgetune.agent.vocabulary.values import whole_number

TABLE = parameter("net.core.rps_sock_flow_entries")

KIND = Kind(
    name="nic.rfs",
    target={"interface": INTERFACE},
    value=Text(r"[0-9]{1,9}"),
    tidy=whole_number,
    touches=lambda target: [f"interface {target['interface']}", TABLE],
    disruption="live",
    order=110,
    ordered=True,
    summary="How many flows are steered to the CPU that reads them (RFS), in both halves.",
    takes="A number of flows. The kernel rounds it up to a power of two. `0` switches RFS off on "
    "the interface.",
    example={"interface": "*", "value": 32768},
)
