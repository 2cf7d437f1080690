# SPDX-License-Identifier: Apache-2.0
"""Which CPUs send through which queue (XPS)."""

from edgetune.agent.vocabulary.grammar import Text
from edgetune.agent.vocabulary.kind import INTERFACE, Kind
from edgetune.agent.vocabulary.values import CPUS, cpus_or

WORD = "per_queue"


KIND = Kind(
    name="nic.xps",
    target={"interface": INTERFACE},
    value=Text(f"{WORD}|({CPUS})?"),
    tidy=cpus_or(WORD),
    disruption="live",
    order=90,
    summary="Which CPUs send through which transmit queue.",
    takes="`per_queue`: the CPUs that serve the interrupt of a queue send through it. A list of "
    "CPUs goes for all queues, an empty text for none.",
    example={"interface": "eth0", "value": "per_queue"},
)
