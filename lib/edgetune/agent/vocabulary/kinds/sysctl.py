# SPDX-License-Identifier: Apache-2.0
"""Parameters of the kernel."""

import re
from typing import List, Optional

from edgetune.agent.vocabulary.grammar import LINE, Text
from edgetune.agent.vocabulary.kind import Field, Kind, parameter, sysctl_path
from edgetune.agent.vocabulary.values import Target, one_line

EXCLUSIVE = (
    ("vm/dirty_bytes", "vm/dirty_ratio"),
    ("vm/dirty_background_bytes", "vm/dirty_background_ratio"),
    ("vm/overcommit_kbytes", "vm/overcommit_ratio"),
)
"""Parameters of which one becomes zero when the other is set; zero itself may not be writable.

Documentation/admin-guide/sysctl/vm.rst of the kernel has them all.
"""

_TOGETHER = (
    *EXCLUSIVE,
    ("kernel/nmi_watchdog", "kernel/soft_watchdog", "kernel/watchdog"),
    ("net/mptcp/path_manager", "net/mptcp/pm_type"),
    ("net/netfilter/nf_conntrack_max", "net/nf_conntrack_max"),
    ("vm/nr_hugepages", "vm/nr_hugepages_mempolicy"),
)
"""Parameters that change with each other, or are one under several names."""

_UNITS = re.compile(
    "(net/ipv[46]/neigh/)([^/]+)/(?:(base_reachable_time|retrans_time)(?:_ms)?|unres_qlen(?:_bytes)?)"
)
"""Parameters of neighbours that say one thing in two units, of which one is the coarser."""

_COPIED = re.compile(
    "(net/ipv4/conf)/default/([^/]+)|(net/ipv[46]/neigh)/default/([^/]+)"
    "|(net/ipv6/conf)/all/(ignore_routes_with_linkdown|force_forwarding)"
)
"""Parameters that the kernel copies to interfaces. ``tests/lib/agent/test_sysctl_kernel.py``
asks the kernel for those of a network namespace."""

_REFUSED = (
    (
        "net/ipv4/ip_forward|net/ipv[46]/conf/[^/]+/forwarding",
        "the kernel changes more with it than it puts back: redirects, routes that routers "
        "advertised, and LRO of every interface",
    ),
    (
        "net/ipv6/conf/[^/]+/(disable_ipv6|addr_gen_mode|stable_secret)",
        "the kernel removes or makes addresses with it, and their routes do not come back",
    ),
    (
        "kernel/shm_rmid_forced|net/mpls/platform_labels",
        "the kernel removes shared memory, or routes of labels, with it, and they do not come back",
    ),
    (
        "kernel/(kexec_load_disabled|kexec_load_limit_(panic|reboot)|modules_disabled|tainted"
        "|unprivileged_bpf_disabled|usermodehelper/[^/]+|yama/ptrace_scope)"
        "|net/netfilter/nf_hooks_lwtunnel",
        "the kernel takes it back by no other way than a boot",
    ),
    (
        "vm/(compact_memory|drop_caches|stat_refresh)|net/ipv[46]/route/flush|fs/binfmt_misc/.*"
        "|kernel/(ns_last_pid|(msg|sem|shm)_next_id)",
        "it asks the kernel to do something, and keeps no value",
    ),
)
"""Parameters whose way back is not all that they change, with the reason."""


_OF_DEVICE = re.compile(r"dev/([a-z][a-z0-9_]*)/([0-9]+)/.*")
"""Parameters of FreeBSD's devices: those of a card can reset it."""


def parameters(target: Target) -> List[str]:
    """The files of the parameter, and of all that change with it; `*` is each interface.

    FreeBSD has no such files; the parameter goes by their names there, too.
    """
    path = sysctl_path(target["key"])
    device = _OF_DEVICE.fullmatch(path)
    return [parameter(name) for name in dict.fromkeys([path, *_changed_with(path)])] + (
        [f"interface {device.group(1)}{device.group(2)}"] if device else []
    )


def _changed_with(path: str) -> List[str]:
    copied = _COPIED.fullmatch(path)
    if copied:
        top, name = filter(None, copied.groups())
        return [unit.replace("/default/", "/*/") for unit in _in_units(path)] + [f"{top}/*/{name}"]
    # The default is allowed to everybody, and stays so.
    if path == "net/ipv4/tcp_congestion_control":
        return ["net/ipv4/tcp_allowed_congestion_control"]
    together = next((group for group in _TOGETHER if path in group), ())
    return [*together, *_in_units(path)]


def _in_units(path: str) -> List[str]:
    found = _UNITS.fullmatch(path)
    if not found:
        return []
    top, interface, time = found.groups()
    names = (time, f"{time}_ms") if time else ("unres_qlen", "unres_qlen_bytes")
    return [f"{top}{interface}/{name}" for name in names]


def _refusal(key: str) -> Optional[str]:
    path = sysctl_path(key)
    for pattern, why in _REFUSED:
        if re.fullmatch(pattern, path):
            return f"no tuning sets {key}: {why}"
    return None


KIND = Kind(
    name="sysctl",
    target={
        "key": Field(
            # Never two of . and / in a row: swapped, they could lead out of /proc/sys.
            r"[a-z0-9_][A-Za-z0-9_-]*([./][A-Za-z0-9_-]+)*",
            "Name of the parameter as sysctl(8) has it, with dots or slashes. Parameters that "
            "change more than is put back with them are refused, such as `net.ipv4.ip_forward`.",
            _refusal,
        )
    },
    value=Text(LINE),
    tidy=one_line,
    touches=parameters,
    disruption="live",
    order=160,
    ordered=True,
    systems=("linux", "freebsd"),
    summary="A kernel parameter, as sysctl(8) has them.",
    takes="A value as `sysctl -w` takes it. Several numbers stand with spaces between them.",
    example={"key": "net.ipv4.tcp_rmem", "value": "4096 131072 6291456"},
)
