# SPDX-License-Identifier: Apache-2.0
"""Cards of virtio_net whose table of RSS is not kept in step with their queues."""

import re

from edgetune.agent.host import Host
from edgetune.agent.protocol import Unsupported

DRIVER = "virtio_net"
IN_STEP = (6, 12)
"""The first Linux whose virtio_net spreads packets anew with its queues.

Commit 50bfcaedd78e ("virtio_net: Update rss when set queue"); of the stable series only 6.11 got
it. A distribution may have it in an older kernel, which cannot be told from here.
"""


def refuse_out_of_step(host: Host, interface: str) -> None:
    """Unsupported where the driver goes on naming queues that are no longer there.

    It is for a card of virtio_net that has an indirection table. Flows to such queues never
    connect; any ``ethtool -X`` leads to that, too, once the queues are other than at the boot.
    """
    release = host.text("/proc/sys/kernel/osrelease")
    numbers = re.match(r"(\d+)\.(\d+)", release)
    if not numbers or tuple(map(int, numbers.groups())) < IN_STEP:
        raise Unsupported(
            f"{DRIVER} of Linux {release} would send packets of {interface} to queues that are "
            "gone, as its indirection table does not follow the queues before Linux 6.12"
        )
