# SPDX-License-Identifier: Apache-2.0
"""A whole answer of an agent to each verb, with the request that it is to."""

from __future__ import annotations

from typing import Any

BOOT_ID = "5f0c2f5e-6f0a-4b7e-9a53-0d8f4c1f7a11"
ID = "sysctl:net.core.somaxconn"
ROW = {
    "id": ID,
    "runtime": "128",
    "persistent": None,
    "wanted": "4096",
    "reason": "differs",
}
PARTS = {
    "id": "nic.ring:eth0",
    "runtime": {"rx": 512, "tx": 512},
    "persistent": {"rx": 512},
    "wanted": {"rx": 4096},
    "reason": "differs now",
}
_SETTINGS = [{"id": ID}, {"id": "nic.ring:eth0"}]
_DIFF = [{"id": ID, **{at: {"runtime": at, "persistent": None} for at in ("before", "after")}}]
_COUNTS = {"max": {"rx": 4096, "tx": 4096}, "current": {"rx": 512, "tx": 512}}
_VERIFIED = {
    "boot_id": BOOT_ID,
    "verified": True,
    "state": "provisional",
    "settings": [{**ROW, "ok": True}, {**PARTS, "ok": True}],
    "services": {"nginx": "active"},
    "lost_connections": {},
}

REQUESTS: dict[str, dict[str, Any]] = {
    "facts": {},
    "plan": {"settings": _SETTINGS},
    "ready": {"ready": False},
    "sessions": {},
    "drain": {},
    "apply": {},
    "verify": {"settings": _SETTINGS},
    "confirm": {"settings": _SETTINGS},
    "restore": {},
    "reboot": {},
    "sample": {},
    "diagnose": {},
    "textfile": {},
    "hand_over": {},
    "uninstall": {},
    "sockets": {},
    "congestion": {},
}

FACTS: dict[str, Any] = {
    "hostname": "e000",
    "system": "linux",
    "machine": {"uuid": "4c4c4544-0042-4d10-8039-b4c04f4e3232", "serial": "SN1"},
    "os": {"id": "debian", "version": "12"},
    "kernel": "6.1.0-28-amd64",
    "python": "3.11.2",
    "boot_id": BOOT_ID,
    "uptime": 86400.0,
    "unwritable": [],
    "boot": {"loader": "grub", "default": "gnulinux-advanced>gnulinux-6.1.0-28-amd64"},
    "watchdog": {"device": "iTCO_wdt", "armed": True},
    "cpus": {
        "online": "0-63",
        "count": 64,
        "vendor": "GenuineIntel",
        "model": "Xeon",
        "nodes": {"0": "0-31", "1": "32-63"},
    },
    "memory": {
        "total_kb": 263856128,
        "swap_kb": 8 << 20,
        "nodes": {"0": 131928064, "1": 131928064},
        "smallest_node_kb": 131928064,
    },
    "addresses": [{"interface": "eth0", "address": "192.0.2.10"}],
    "nics": {
        "eth0": {
            "driver": "ice",
            "up": True,
            "speed": 25000,
            "numa_node": 0,
            "local_cpus": "0-31",
            "queues": {"rx": 32, "tx": 32},
            "channels": {"max": {"combined": 64}, "current": {"combined": 32}},
            "ring": _COUNTS,
            "ring_max": _COUNTS["max"],
            "rss": {"queues": 32, "table_size": 512},
        }
    },
    "thp": {"enabled": "madvise", "defrag": "madvise"},
    "init": "systemd",
    "kexec_loaded": False,
    "agent_state": {
        "epoch": 3,
        "ready": True,
        "tunings": {"nic_ring": {"state": "confirmed", "digest": "sha256:1", "rollout": "r1"}},
    },
}

RESULTS: dict[str, dict[str, Any]] = {
    "facts": FACTS,
    "plan": {
        "boot_id": BOOT_ID,
        "settings": [{**ROW, "status": "change"}, {**PARTS, "status": "change"}],
    },
    "ready": {"changed": True, "ready": False, "sessions": 0, "boot_id": BOOT_ID},
    "sessions": {"sessions": 0, "boot_id": BOOT_ID},
    "drain": {
        "withdrawn": "flag",
        "up": True,
        "leaving": False,
        "refuses": "",
        "sessions": 0,
        "boot_id": BOOT_ID,
    },
    "apply": {
        "changed": True,
        "diff": _DIFF,
        "restarted": ["nginx"],
        "state": "provisional",
        "boot_id": BOOT_ID,
    },
    "verify": {
        **_VERIFIED,
        "way_back": {ID: {"runtime": "128", "persistent": None}, "nic.ring:eth0": None},
    },
    "confirm": {**_VERIFIED, "confirmed": True, "state": "confirmed"},
    "restore": {
        "changed": True,
        "diff": _DIFF,
        "restarted": [],
        "boot_id": BOOT_ID,
        "nothing_to_restore": False,
    },
    "reboot": {"rebooting": True, "boot_id": BOOT_ID},
    "textfile": {"missing": "", "boot_id": BOOT_ID},
    "hand_over": {
        "files": {"/etc/sysctl.d/90-edgetune-0001-queue.conf": "/etc/sysctl.d/89-queue.conf"},
        "found": True,
        "wrong": [],
        "boot_id": BOOT_ID,
    },
    "uninstall": {
        "files": ["/var/lib/edgetune/epoch"],
        "left": ["/etc/edgetune"],
        "tunings": [],
        "boot_id": BOOT_ID,
    },
    "congestion": {
        "boot_id": BOOT_ID,
        "number": 3,
        "checksum": "sha256:0123456789abcdef",
        "prefixes": 2,
        "seconds_left": 3599.5,
        "kept": True,
        "skipped": {},
    },
    "sockets": {
        "boot_id": BOOT_ID,
        "seen": 3,
        "share": 0.25,
        "cpu_ms": 12.5,
        "columns": {
            "prefix": [13303921, 72057594037927936],
            "delivery_rate": [1e6, 2e6],
            "goodput": [5e5, None],
            "rtt_ms": [40.5, None],
            "min_rtt_ms": [30.0, None],
            "bytes_acked": [900.0, None],
            "bytes_sent": [1000.0, None],
            "bytes_retransmitted": [0.0, None],
        },
    },
    "sample": {
        "boot_id": BOOT_ID,
        "uptime": 86400.25,
        "counters": {"rx_packets": 7, "listen_drops": 0},
        "gauges": {"drifted": 1, "load1": 0.25, "health_failed": 0.0, "health_p50_ms": 1.5},
        "drift": [{**ROW, "tuning": "accept_queue"}],
        "health": "",
        "log": "",
    },
    "diagnose": {
        "boot_id": BOOT_ID,
        "system": "linux",
        "seconds": 5.0,
        "findings": [
            {
                "finding": "accept_queue_overflows",
                "severity": "helps",
                "what": "the accept queue overflows 12/s",
                "measure": "per_s",
                "numbers": {"per_s": 12.0, "total": 60},
                "tuning": "accept_queue",
            }
        ],
        "unread": ["irqs: Permission denied"],
        "tunings": {"nic_ring": "confirmed"},
    },
}
