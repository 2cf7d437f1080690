# SPDX-License-Identifier: Apache-2.0
"""Which CPUs receive packets in software (RPS)."""

from edgetune.agent.vocabulary.grammar import Text
from edgetune.agent.vocabulary.kind import INTERFACE, Kind
from edgetune.agent.vocabulary.values import CPUS, cpus_or

WORD = "others"


KIND = Kind(
    name="nic.rps",
    target={"interface": INTERFACE},
    value=Text(f"{WORD}|({CPUS})?"),
    tidy=cpus_or(WORD),
    disruption="live",
    order=100,
    summary="Which CPUs receive packets in software: the same for all receive queues.",
    takes="`others`: the CPUs of the card's NUMA node that do not serve its interrupts. Or a list "
    "of CPUs. An empty text switches RPS off.",
    example={"interface": "*", "value": "others"},
)
