# SPDX-License-Identifier: Apache-2.0
"""How much memory the kernel may be told to keep free."""

from edgetune.agent.host import Host
from edgetune.agent.protocol import Unsupported
from edgetune.agent.topology import memory_of
from edgetune.agent.vocabulary.kinds.memory_watermarks import LEAST

MIN_FREE = "vm.min_free_kbytes"
MOST = 5
"""Per cent of the memory. The kernel takes any number, and kills programs to keep it free."""


def refuse_unfit(host: Host, kilobytes: int) -> None:
    """Unsupported below ``LEAST``, and above 5 % of the memory, or of that of the smallest node."""
    if kilobytes < LEAST:
        raise Unsupported(f"{kilobytes} kB are less than {LEAST} kB, which the kernel needs")
    memory = memory_of(host)
    places = (
        ("the memory", memory.total_kb),
        ("the smallest NUMA node", memory.smallest_node_kb),
    )
    for place, there in places:
        if there and kilobytes * 100 > there * MOST:
            raise Unsupported(
                f"{kilobytes} kB are more than {MOST} % of {place}, which has {there} kB"
            )
