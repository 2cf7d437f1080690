# SPDX-License-Identifier: Apache-2.0
"""Units of systemd, and what services are started with."""

from edgetune.agent.vocabulary.grammar import LINE, SWITCH, Parts, Text, Wrong
from edgetune.agent.vocabulary.kind import (
    SERVICE,
    Field,
    Kind,
    properties_of,
    property_of,
    unit_refusal,
)
from edgetune.agent.vocabulary.values import Target, Value, cpu_list


def one_property(target: Target, value: Value) -> Value:
    """A line as in a unit file; CPU lists in their shortest form."""
    if target["property"] == "CPUAffinity":
        return cpu_list(str(value))
    line = " ".join(str(value).split())
    if line.endswith("\\"):
        raise Wrong("must not end with a backslash")
    return line


PROPERTY = Kind(
    name="service.property",
    target={
        "service": SERVICE,
        "property": Field(
            "[A-Z][A-Za-z0-9]*",
            "Name of a property of the service's unit, such as `LimitNOFILE`.",
        ),
    },
    value=Text(LINE),
    tidy=one_property,
    touches=lambda target: [property_of(target["service"], target["property"])],
    disruption="restart",
    order=180,
    ordered=True,
    systems=("linux", "freebsd"),
    summary="A property of a service's unit, such as LimitNOFILE; it takes effect with a restart.",
    takes="The value as a unit file has it, on one line. For `CPUAffinity` a list of CPUs. "
    "FreeBSD has `CPUAffinity`, `LimitNOFILE` and `Nice`, kept in `/etc/rc.conf.d/SERVICE/`.",
    example={"service": "nginx", "property": "LimitNOFILE", "value": 65536},
)


CPUS_PROPERTY = "CPUAffinity"

CPU_AFFINITY = Kind(
    name="cpu.service_affinity",
    target={"service": SERVICE},
    value=Text("off_nic_irqs|off_nic_cores"),
    touches=properties_of(CPUS_PROPERTY),
    disruption="restart",
    order=200,
    summary="The CPUs of a service: all but those that serve interrupts of network cards.",
    takes="`off_nic_irqs`: all CPUs but those that serve interrupts of network cards. "
    "`off_nic_cores`: without the hyper-threads of these, too.",
    example={"service": "nginx", "value": "off_nic_irqs"},
)


UNIT = Kind(
    name="unit",
    target={
        "unit": Field(
            r"[A-Za-z0-9][A-Za-z0-9@:._-]{0,199}\.(service|socket|timer|path)",
            "A unit of systemd with its suffix `.service`, `.socket`, `.timer` or `.path`.",
            unit_refusal,
        )
    },
    value=Parts({"enabled": SWITCH, "active": SWITCH}),
    disruption="live",
    # Stops what would change the others, such as irqbalance.
    order=20,
    summary="Whether a unit of systemd is `active` (on or off), and `enabled` (the same).",
    takes="`active`, `enabled` or both, each `on` or `off`.",
    example={"unit": "irqbalance.service", "value": {"active": "off", "enabled": "off"}},
)
