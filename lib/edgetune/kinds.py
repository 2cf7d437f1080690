# SPDX-License-Identifier: Apache-2.0
"""The kinds of settings, as the catalogue knows them.

The host agent has a module for each, but for those that are set by the BMC of the host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Callable

from edgetune.off_limits import path_refusal, unit_refusal

# The star stands for every interface of a host that is up.
_INTERFACE = {"interface": r"[A-Za-z0-9_][A-Za-z0-9_.-]*|\*"}
_SERVICE = {"service": r"[A-Za-z0-9][A-Za-z0-9@:._-]*"}
_LINE = r"[ -~\t]{1,1000}"
_NUMBER = r"[0-9]{1,10}"
_COUNT = r"[1-9][0-9]{0,4}"
_SWITCH = "on|off"
_RANGE = r"[0-9]{1,5}(-[0-9]{1,5})?"
_CPUS = rf"{_RANGE}([, ]+{_RANGE})*"
_NODE = r"[0-9]{1,4}"
_NODES = rf"{_NODE}(-{_NODE})?"


@dataclass(frozen=True)
class Kind:
    """A kind of setting: the fields that say what is set, and what it asks of a host at least.

    A value is text that matches ``text``, or it has ``parts``: ``numbers``, ``switches`` (numbers,
    on and off) or ``words`` (numbers and words). ``names`` has a pattern of their names, and one of
    what such a part can be. Kinds that are ``ordered`` know ``only``. ``refused`` tells of a field
    of the target why no tuning may have it. Each host checks all of it, and more, again; or its
    BMC does, for kinds that are set there (``by_bmc``); ``summary`` says what such a kind is.
    """

    target: Mapping[str, str]
    disruption: str
    parts: str = ""
    text: str = _LINE
    names: Mapping[str, str] = field(default_factory=dict)
    ordered: bool = True
    refused: Mapping[str, Callable[[str], str | None]] = field(default_factory=dict)
    by_bmc: bool = False
    summary: str = ""

    def pattern_of(self, part: str) -> str | None:
        """What a part of that name can be; None when there is none."""
        return next((own for name, own in self.names.items() if re.fullmatch(name, part)), None)


KINDS: Mapping[str, Kind] = {
    "bios.attribute": Kind(
        {"attribute": r"[A-Za-z0-9_.-]{1,128}"},
        "reboot",
        ordered=False,
        by_bmc=True,
        summary="An attribute of the BIOS, by the name and in the words of the machine's maker.",
    ),
    "bios.snoop_mode": Kind(
        {},
        "reboot",
        text="home|early|cluster_on_die|home_osb",
        ordered=False,
        by_bmc=True,
        summary="How the caches of several sockets are kept coherent, whoever made the machine.",
    ),
    "unit": Kind(
        {"unit": r"[A-Za-z0-9][A-Za-z0-9@:._-]*\.(service|socket|timer|path)"},
        "live",
        "switches",
        names={"active|enabled": _SWITCH},
        ordered=False,
        refused={"unit": unit_refusal},
    ),
    "sysctl": Kind({"key": r"[a-z0-9_][A-Za-z0-9_-]*([./][A-Za-z0-9_-]+)*"}, "live"),
    "nic.channels": Kind(_INTERFACE, "drain", "numbers", names={"rx|tx|combined": r"[0-9]{1,5}"}),
    # Nearly every driver stops its queues, and most take the link down, while rings change.
    "nic.ring": Kind(_INTERFACE, "drain", "numbers", names={"rx|tx": _COUNT}),
    # Some drivers stop their queues for another table (bnxt_en).
    "nic.rss": Kind(
        _INTERFACE,
        "drain",
        "words",
        names={
            "equal": _COUNT,
            "weight": r"[0-9]{1,5}( [0-9]{1,5})+",
            "hfunc": "toeplitz|xor|crc32",
            "key": r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2})+",
            "(tcp|udp|sctp)[46]": r"[mvtsdfn]{1,7}",
        },
    ),
    # Drivers reset the link for some of them (ntuple above all).
    "nic.features": Kind(
        _INTERFACE,
        "drain",
        "switches",
        names={r"[a-z0-9][a-z0-9_-]{0,99}": _SWITCH},
        ordered=False,
    ),
    # Of the drivers we know only ixgbe starts the interface anew, where LRO comes or goes with it.
    "nic.coalesce": Kind(
        _INTERFACE,
        "live",
        "switches",
        names={
            "(adaptive|cqe-mode)-(rx|tx)": _SWITCH,
            "(rx|tx)-(usecs|frames)(-irq)?|(rx|tx)-(usecs|frame)-(low|high)": _NUMBER,
            "stats-block-usecs|sample-interval|pkt-rate-(low|high)": _NUMBER,
            "tx-aggr-(max-bytes|max-frames|time-usecs)": _NUMBER,
        },
    ),
    "nic.irq_affinity": Kind(
        _INTERFACE, "live", text=f"local|spread|interleave|{_CPUS}", ordered=False
    ),
    "nic.xps": Kind(_INTERFACE, "live", text=f"per_queue|({_CPUS})?", ordered=False),
    "nic.rps": Kind(_INTERFACE, "live", text=f"others|({_CPUS})?", ordered=False),
    "nic.rfs": Kind(_INTERFACE, "live", text=r"[0-9]{1,9}"),
    "route.metric": Kind(
        {"family": r"inet6?", "route": r"default|[0-9A-Fa-f.:]{2,39}/[0-9]{1,3}"},
        "live",
        "words",
        names={
            "initcwnd|initrwnd": _COUNT,
            "quickack": "[01]",
            "congctl": r"[a-z][a-z0-9_-]{0,14}",
        },
    ),
    "memory.thp": Kind(
        {"file": r"enabled|defrag"}, "live", text=r"[a-z][a-z+_-]{0,40}", ordered=False
    ),
    "memory.watermarks": Kind(
        {"parameter": r"min_free_kbytes|watermark_scale_factor|watermark_boost_factor"},
        "live",
        text=_NUMBER,
    ),
    "memory.tmpfs_policy": Kind(
        {"mount": r"/[!-~]{0,200}"},
        "live",
        text=f"interleave(:{_NODES})?|bind:{_NODES}|prefer:{_NODE}|local",
        ordered=False,
    ),
    "sched.migration_cost": Kind({}, "live", text=r"[0-9]{1,9}"),
    "file": Kind(
        {"path": r"(/[A-Za-z0-9_@+-][A-Za-z0-9_@+:,.-]*)+"},
        "live",
        text=r"[\s\S]*\n",
        ordered=False,
        refused={"path": path_refusal},
    ),
    "service.property": Kind({**_SERVICE, "property": r"[A-Za-z]+"}, "restart"),
    "memory.numa_policy": Kind(
        _SERVICE,
        "restart",
        text=f"interleave|local|default|preferred:{_NODE}|bind:{_NODES}(,{_NODES})*",
        ordered=False,
    ),
    "cpu.service_affinity": Kind(
        _SERVICE, "restart", text="off_nic_irqs|off_nic_cores", ordered=False
    ),
}
