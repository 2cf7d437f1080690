# SPDX-License-Identifier: Apache-2.0
"""How many packets the rings of an interface hold."""

from edgetune.agent.vocabulary.grammar import Parts, Whole
from edgetune.agent.vocabulary.kind import INTERFACE, Kind

SIDES = ("rx", "tx")

KIND = Kind(
    name="nic.ring",
    target={"interface": INTERFACE},
    value=Parts(dict.fromkeys(SIDES, Whole(1, 65536))),
    # Nearly every driver stops its queues, and most take the link down, while rings change.
    disruption="drain",
    order=40,
    ordered=True,
    summary="How many packets the rings of each queue hold; the link goes down while that changes.",
    takes="`rx` and `tx`, each a number of packets from 1 to 65536, as `ethtool -G` takes them.",
    example={"interface": "*", "value": {"rx": "{{ nic.ring_max.rx }}"}},
)
