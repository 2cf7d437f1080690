# SPDX-License-Identifier: Apache-2.0
"""What the BMC sets in the BIOS of a machine."""

from edgetune.agent.vocabulary.grammar import LINE, Text
from edgetune.agent.vocabulary.kind import Field, Kind

ATTRIBUTE = Kind(
    name="bios.attribute",
    target={
        "attribute": Field(
            r"[A-Za-z0-9_.-]{1,128}",
            "Name of an attribute of the BIOS, as the machine's maker calls it.",
        )
    },
    value=Text(LINE),
    disruption="reboot",
    order=10,
    by_bmc=True,
    summary="An attribute of the BIOS, by the name and in the words of the machine's maker.",
    takes="A value of the machine's registry of attributes, as the registry spells it.",
    example={"attribute": "ProcCStates", "value": "Disabled"},
)


SNOOP_MODE = Kind(
    name="bios.snoop_mode",
    target={},
    value=Text("home|early|cluster_on_die|home_osb"),
    touches=lambda target: ["bios snoop_mode"],
    disruption="reboot",
    order=11,
    by_bmc=True,
    summary="How the caches of several sockets are kept coherent, whoever made the machine.",
    takes="`home`, `early`, `cluster_on_die` or `home_osb`.",
    example={"value": "home"},
)
