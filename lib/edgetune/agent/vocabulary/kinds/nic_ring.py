# SPDX-License-Identifier: Apache-2.0
"""How many packets the rings of an interface hold."""

from edgetune.agent.vocabulary.grammar import Parts, Whole
from edgetune.agent.vocabulary.kind import Kind
from edgetune.agent.vocabulary.targets import INTERFACE, touches_interface

SIDES = ("rx", "tx")

KIND = Kind(
    name="nic.ring",
    target={"interface": INTERFACE},
    value=Parts(dict.fromkeys(SIDES, Whole(1, 65536))),
    touches=touches_interface,
    # Nearly every driver stops its queues, and most take the link down, while rings change.
    disruption="drain",
    order=40,
    summary="How many packets the rings of each queue hold; the link goes down while that changes.",
    takes="`rx` and `tx`, each a number of packets from 1 to 65536, as `ethtool -G` takes them.",
    example={"interface": "*", "value": {"rx": "{{ nic.ring_max.rx }}"}},
)
