# SPDX-License-Identifier: Apache-2.0
"""Attributes of the BIOS, as the maker of the machine calls them."""

from edgetune.agent.vocabulary.grammar import LINE, Text
from edgetune.agent.vocabulary.kind import Field, Kind

KIND = Kind(
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
