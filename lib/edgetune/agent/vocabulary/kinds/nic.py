# SPDX-License-Identifier: Apache-2.0
"""What is set on network interfaces."""

import re
from typing import Dict, Union

from edgetune.agent.vocabulary.grammar import SWITCH, Parts, Text, Whole, Wrong
from edgetune.agent.vocabulary.kind import INTERFACE, Kind, parameter
from edgetune.agent.vocabulary.values import CPUS, Target, Value, cpus_or, parts, whole_number

CHANNEL_TYPES = ("rx", "tx", "combined")

CHANNELS = Kind(
    name="nic.channels",
    target={"interface": INTERFACE},
    value=Parts(dict.fromkeys(CHANNEL_TYPES, Whole(0, 65536))),
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


RING_SIDES = ("rx", "tx")

RING = Kind(
    name="nic.ring",
    target={"interface": INTERFACE},
    value=Parts(dict.fromkeys(RING_SIDES, Whole(1, 65536))),
    # Nearly every driver stops its queues, and most take the link down, while rings change.
    disruption="drain",
    order=40,
    ordered=True,
    summary="How many packets the rings of each queue hold; the link goes down while that changes.",
    takes="`rx` and `tx`, each a number of packets from 1 to 65536, as `ethtool -G` takes them.",
    example={"interface": "*", "value": {"rx": "{{ nic.ring_max.rx }}"}},
)


FLOWS = ("tcp4", "udp4", "sctp4", "tcp6", "udp6", "sctp6")

LETTERS = "mvtsdfn"
"""The fields of a header that can be hashed, in the order in which ``ethtool -N`` has them."""


def tidy_rss(target: Target, value: Value) -> Value:
    """Weights without zeros at the end, the letters of fields in their order, hexadecimal small."""
    value = {name: _tidy_rss_part(name, part) for name, part in parts(value).items()}
    if "equal" in value and "weight" in value:
        raise Wrong("cannot be set with equal: both make the table", "weight")
    if value.get("weight") == "":
        raise Wrong("is 0 for all queues", "weight")
    return value


def _tidy_rss_part(name: str, part: Union[int, str]) -> Union[int, str]:
    if isinstance(part, int):
        return part
    if name == "weight":
        return re.sub(r"( ?\b0)+$", "", " ".join(str(int(word)) for word in part.split()))
    return "".join(one for one in LETTERS if one in part) if name in FLOWS else part.lower()


RSS = Kind(
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
    tidy=tidy_rss,
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


SHORT = {
    "rx": "rx-checksumming",
    "tx": "tx-checksumming",
    "sg": "scatter-gather",
    "tso": "tcp-segmentation-offload",
    "ufo": "udp-fragmentation-offload",
    "gso": "generic-segmentation-offload",
    "gro": "generic-receive-offload",
    "lro": "large-receive-offload",
    "rxvlan": "rx-vlan-offload",
    "txvlan": "tx-vlan-offload",
    "ntuple": "ntuple-filters",
    "rxhash": "receive-hashing",
}
"""What ``ethtool -K`` takes besides the names that ``ethtool -k`` shows."""


def full_names(target: Target, value: Value) -> Value:
    """The names that ``ethtool -k`` shows."""
    found: Dict[str, Union[int, str]] = {}
    for name, part in parts(value).items():
        full = SHORT.get(name, name)
        if full in found:
            raise Wrong(f"is {full}, which is set twice", name)
        found[full] = part
    return found


FEATURES = Kind(
    name="nic.features",
    target={"interface": INTERFACE},
    value=Parts({r"[a-z0-9][a-z0-9_-]{0,99}": SWITCH}),
    tidy=full_names,
    # Drivers reset the link for some of them (ntuple above all).
    disruption="drain",
    order=60,
    summary='What an interface does by itself, such as {"ntuple-filters": "off"}.',
    takes="Names that `ethtool -k` shows or `ethtool -K` takes, each `on` or `off`.",
    example={"interface": "*", "value": {"ntuple-filters": "on"}},
)


SWITCHES = {"adaptive-rx": 11, "adaptive-tx": 12, "cqe-mode-rx": 25, "cqe-mode-tx": 24}
NUMBERS = {
    "stats-block-usecs": 10,
    "sample-interval": 23,
    "pkt-rate-low": 13,
    "pkt-rate-high": 18,
    "rx-usecs": 2,
    "rx-frames": 3,
    "rx-usecs-irq": 4,
    "rx-frames-irq": 5,
    "rx-usecs-low": 14,
    "rx-frame-low": 15,
    "rx-usecs-high": 19,
    "rx-frame-high": 20,
    "tx-usecs": 6,
    "tx-frames": 7,
    "tx-usecs-irq": 8,
    "tx-frames-irq": 9,
    "tx-usecs-low": 16,
    "tx-frame-low": 17,
    "tx-usecs-high": 21,
    "tx-frame-high": 22,
    "tx-aggr-max-bytes": 26,
    "tx-aggr-max-frames": 27,
    "tx-aggr-time-usecs": 28,
}
"""The names of ``ethtool -C``, with the attributes of the kernel (ethtool_netlink.h)."""

COALESCE = Kind(
    name="nic.coalesce",
    target={"interface": INTERFACE},
    value=Parts({**dict.fromkeys(SWITCHES, SWITCH), **dict.fromkeys(NUMBERS, Whole(0, 2**32 - 1))}),
    # Of the drivers we know only ixgbe starts the interface anew, where LRO comes or goes with it.
    disruption="live",
    order=70,
    ordered=True,
    summary="How long an interface gathers packets before it interrupts: names as `ethtool -C` has "
    "them.",
    takes="Names of `ethtool -C`. `adaptive-rx`, `adaptive-tx`, `cqe-mode-rx` and `cqe-mode-tx` "
    "are `on` or `off`; each other one is a number.",
    example={"interface": "*", "value": {"adaptive-rx": "off", "rx-usecs": 100}},
)


POLICIES = ("local", "spread", "interleave")


IRQ_AFFINITY = Kind(
    name="nic.irq_affinity",
    target={"interface": INTERFACE},
    value=Text("|".join([*POLICIES, CPUS])),
    tidy=cpus_or(*POLICIES),
    systems=("linux", "freebsd"),
    disruption="live",
    order=80,
    summary="Which CPU serves the interrupts of which queue: one each, cores before hyper-threads.",
    takes="`local`: CPUs of the card's NUMA node in turn. `spread`: each node gets a block of "
    "neighbouring queues. `interleave`: the queues are dealt out to the nodes one by one. A list "
    "of CPUs is taken in turn. On Linux the message-signalled interrupts of the card (`msi_irqs`) "
    "are looked at, and their names tell which of them queues raise. A card is refused where a "
    "receive queue has none and a name is unknown; `diagnose` shows the unknown ones. On FreeBSD "
    "for cards whose driver uses iflib(9), and for vtnet, cxgbe and mlx5en.",
    example={"interface": "*", "value": "local"},
)


PER_QUEUE = "per_queue"


XPS = Kind(
    name="nic.xps",
    target={"interface": INTERFACE},
    value=Text(f"{PER_QUEUE}|({CPUS})?"),
    tidy=cpus_or(PER_QUEUE),
    disruption="live",
    order=90,
    summary="Which CPUs send through which transmit queue.",
    takes="`per_queue`: the CPUs that serve the interrupt of a queue send through it. A list of "
    "CPUs goes for all queues, an empty text for none.",
    example={"interface": "eth0", "value": "per_queue"},
)


OTHERS = "others"


RPS = Kind(
    name="nic.rps",
    target={"interface": INTERFACE},
    value=Text(f"{OTHERS}|({CPUS})?"),
    tidy=cpus_or(OTHERS),
    disruption="live",
    order=100,
    summary="Which CPUs receive packets in software: the same for all receive queues.",
    takes="`others`: the CPUs of the card's NUMA node that do not serve its interrupts. Or a list "
    "of CPUs. An empty text switches RPS off.",
    example={"interface": "*", "value": "others"},
)


TABLE = parameter("net.core.rps_sock_flow_entries")

RFS = Kind(
    name="nic.rfs",
    target={"interface": INTERFACE},
    value=Text(r"[0-9]{1,9}"),
    tidy=whole_number,
    touches=lambda target: [f"interface {target['interface']}", TABLE],
    disruption="live",
    order=110,
    ordered=True,
    summary="How many flows are steered to the CPU that reads them (RFS), in both halves.",
    takes="A number of flows. The kernel rounds it up to a power of two. `0` switches RFS off on "
    "the interface.",
    example={"interface": "*", "value": 32768},
)
