# SPDX-License-Identifier: Apache-2.0
"""Services that keep off the CPUs which serve network cards."""

from edgetune.agent.vocabulary.grammar import Text
from edgetune.agent.vocabulary.kind import SERVICE, Kind, properties_of

PROPERTY = "CPUAffinity"

KIND = Kind(
    name="cpu.service_affinity",
    target={"service": SERVICE},
    value=Text("off_nic_irqs|off_nic_cores"),
    touches=properties_of(PROPERTY),
    disruption="restart",
    order=200,
    summary="The CPUs of a service: all but those that serve interrupts of network cards.",
    takes="`off_nic_irqs`: all CPUs but those that serve interrupts of network cards. "
    "`off_nic_cores`: without the hyper-threads of these, too.",
    example={"service": "nginx", "value": "off_nic_irqs"},
)
