# SPDX-License-Identifier: Apache-2.0
"""How an interface spreads what it receives over its queues (RSS)."""

import re
from typing import Union

from edgetune.agent.vocabulary.grammar import Parts, Text, Whole, Wrong
from edgetune.agent.vocabulary.kind import INTERFACE, Kind
from edgetune.agent.vocabulary.values import Target, Value, parts

FLOWS = ("tcp4", "udp4", "sctp4", "tcp6", "udp6", "sctp6")

LETTERS = "mvtsdfn"
"""The fields of a header that can be hashed, in the order in which ``ethtool -N`` has them."""


def tidy(target: Target, value: Value) -> Value:
    """Weights without zeros at the end, the letters of fields in their order, hexadecimal small."""
    value = {name: _tidy_part(name, part) for name, part in parts(value).items()}
    if "equal" in value and "weight" in value:
        raise Wrong("cannot be set with equal: both make the table", "weight")
    if value.get("weight") == "":
        raise Wrong("is 0 for all queues", "weight")
    return value


def _tidy_part(name: str, part: Union[int, str]) -> Union[int, str]:
    if isinstance(part, int):
        return part
    if name == "weight":
        return re.sub(r"( ?\b0)+$", "", " ".join(str(int(word)) for word in part.split()))
    return "".join(one for one in LETTERS if one in part) if name in FLOWS else part.lower()


KIND = Kind(
    name="nic.rss",
    target={"interface": INTERFACE},
    value=Parts(
        {
            "equal": Whole(1, 65536),
            "weight": Text(r"[0-9]{1,5}( [0-9]{1,5})+"),
            "hfunc": Text("toeplitz|xor|crc32"),
            "key": Text(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2})+"),
            **dict.fromkeys(FLOWS, Text(f"[{LETTERS}]{{1,7}}")),
        }
    ),
    tidy=tidy,
    # Some drivers stop their queues for another table (bnxt_en).
    disruption="drain",
    order=50,
    ordered=True,
    summary='How an interface spreads what it receives over its queues, such as {"equal": 4}.',
    takes="`equal` (over how many queues) or `weight` (a number for each queue). `hfunc`: "
    "`toeplitz`, `xor` or `crc32`. `key`: bytes in hexadecimal with colons. `tcp4`, `udp4`, "
    "`sctp4`, `tcp6`, `udp6`, `sctp6`: the letters of the header fields that are hashed, as "
    "`ethtool -N` takes them.",
    example={"interface": "eth0", "value": {"equal": 8, "udp4": "sdfn"}},
)
