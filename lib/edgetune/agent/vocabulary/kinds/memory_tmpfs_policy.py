# SPDX-License-Identifier: Apache-2.0
"""On which NUMA nodes the files of a tmpfs get their memory."""

from edgetune.agent.vocabulary.grammar import Text
from edgetune.agent.vocabulary.kind import Field, Kind
from edgetune.agent.vocabulary.values import NODE

# Ranges only: a comma would end the option of some versions of mount.
NODES = f"{NODE}(-{NODE})?"


KIND = Kind(
    name="memory.tmpfs_policy",
    target={"mount": Field("/[!-~]{0,200}", "Where a tmpfs is mounted.")},
    value=Text(f"interleave(:{NODES})?|bind:{NODES}|prefer:{NODE}|local"),
    disruption="live",
    order=150,
    summary="The NUMA nodes on which a tmpfs gets the memory of what is written from now on.",
    takes="`interleave` (over all NUMA nodes with memory), `interleave:NODES`, `bind:NODES`, "
    "`prefer:NODE` or `local`. NODES is one node or one range, such as `0-1`.",
    example={"mount": "/var/cache/nginx", "value": "interleave"},
)
