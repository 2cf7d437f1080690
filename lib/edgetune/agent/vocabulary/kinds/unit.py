# SPDX-License-Identifier: Apache-2.0
"""Units of systemd: whether they run, and whether they are started at a boot."""

from edgetune.agent.vocabulary.grammar import SWITCH, Parts
from edgetune.agent.vocabulary.kind import Field, Kind, unit_refusal

KIND = Kind(
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
