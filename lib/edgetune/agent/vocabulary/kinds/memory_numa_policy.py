# SPDX-License-Identifier: Apache-2.0
"""On which NUMA nodes a service gets its memory."""

from edgetune.agent.vocabulary.grammar import Text
from edgetune.agent.vocabulary.kind import SERVICE, Kind, properties_of
from edgetune.agent.vocabulary.values import NODE

POLICY, MASK = "NUMAPolicy", "NUMAMask"
NODES = f"{NODE}(-{NODE})?(,{NODE}(-{NODE})?)*"

KIND = Kind(
    name="memory.numa_policy",
    target={"service": SERVICE},
    value=Text(f"interleave|local|default|preferred:{NODE}|bind:{NODES}"),
    touches=properties_of(POLICY, MASK),
    disruption="restart",
    order=190,
    summary="The NUMA nodes on which a service gets the memory that it asks for after its restart.",
    takes="`interleave` (over all NUMA nodes with memory), `preferred:NODE`, `bind:NODES`, `local` "
    "or `default`. NODES is a list of nodes and ranges, such as `0-1,3`.",
    example={"service": "nginx", "value": "preferred:0"},
)
