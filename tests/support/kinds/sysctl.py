# SPDX-License-Identifier: Apache-2.0
"""How `sysctl` is tried."""

from __future__ import annotations

from tests.support.trials import Trial, any_of

VALUES = {
    "net.core.somaxconn": ("64", "0x1000"),
    "net.ipv4.tcp_rmem": ("4096 65536 16777216", "8192"),
    "vm.swappiness": ("1", "100"),
    "vm.dirty_ratio": ("10",),
    "vm.dirty_bytes": ("100000000",),
    "vm.min_free_kbytes": ("70000",),
    "net.core.rps_sock_flow_entries": ("65536",),
}

TRIAL = Trial(
    target={"key": "net.core.somaxconn"},
    taken=["4096", "bbr", "4096 87380 6291456"],
    refused=["", "1\n2"],
    settings=lambda build: [
        any_of("sysctl", {"key": key}, *values) for key, values in VALUES.items()
    ],
    files=lambda build: {"proc/sys/vm/dirty_ratio": "20\n", "proc/sys/vm/dirty_bytes": "0\n"},
    # Other kinds write these.
    file="/proc/sys/(?!.*(min_free_kbytes|rps_sock_flow_entries|watermark_|migration_cost))",
)
