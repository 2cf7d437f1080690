# SPDX-License-Identifier: Apache-2.0
"""How the caches of several sockets are kept coherent."""

from edgetune.agent.vocabulary.grammar import Text
from edgetune.agent.vocabulary.kind import Kind

KIND = Kind(
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
