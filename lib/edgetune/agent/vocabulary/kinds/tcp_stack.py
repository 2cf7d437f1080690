# SPDX-License-Identifier: Apache-2.0
"""The TCP stack of FreeBSD that new connections get."""

from edgetune.agent.vocabulary.grammar import Text
from edgetune.agent.vocabulary.kind import Kind, parameter

PARAMETER = "net.inet.tcp.functions_default"

KIND = Kind(
    name="tcp.stack",
    target={},
    value=Text("[a-z][a-z0-9_]{0,30}"),
    touches=lambda target: [parameter(PARAMETER)],
    disruption="live",
    order=165,
    systems=("freebsd",),
    summary="The TCP stack that new connections get; those that are open keep theirs.",
    takes="A stack that `sysctl net.inet.tcp.functions_available` lists, such as `freebsd`, "
    "`rack` or `bbr`, or whose module the tuning loads.",
    example={"value": "rack"},
)
