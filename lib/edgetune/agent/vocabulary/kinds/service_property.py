# SPDX-License-Identifier: Apache-2.0
"""Properties of services."""

from edgetune.agent.vocabulary.grammar import LINE, Text, Wrong
from edgetune.agent.vocabulary.kind import SERVICE, Field, Kind, property_of
from edgetune.agent.vocabulary.values import Target, Value, cpu_list


def tidy(target: Target, value: Value) -> Value:
    """A line as in a unit file; CPU lists in their shortest form."""
    if target["property"] == "CPUAffinity":
        return cpu_list(str(value))
    line = " ".join(str(value).split())
    if line.endswith("\\"):
        raise Wrong("must not end with a backslash")
    return line


KIND = Kind(
    name="service.property",
    target={
        "service": SERVICE,
        "property": Field(
            "[A-Z][A-Za-z0-9]*",
            "Name of a property of the service's unit, such as `LimitNOFILE`.",
        ),
    },
    value=Text(LINE),
    tidy=tidy,
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
