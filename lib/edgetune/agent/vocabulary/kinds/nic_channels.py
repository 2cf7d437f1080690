# SPDX-License-Identifier: Apache-2.0
"""How many queues an interface has."""

from edgetune.agent.vocabulary.grammar import Parts, Whole
from edgetune.agent.vocabulary.kind import INTERFACE, Kind

TYPES = ("rx", "tx", "combined")

KIND = Kind(
    name="nic.channels",
    target={"interface": INTERFACE},
    value=Parts(dict.fromkeys(TYPES, Whole(0, 65536))),
    systems=("linux", "freebsd"),
    disruption="drain",
    order=30,
    ordered=True,
    summary='How many queues an interface has, such as {"combined": 4}; ethtool tells and changes '
    "it.",
    takes="`rx`, `tx` and `combined`, each a number of queues, as `ethtool -L` takes them. On "
    "FreeBSD `combined`, for mlx5en: other drivers make their queues at a boot (`loader.tunable`).",
    example={"interface": "*", "value": {"combined": 8}},
)
