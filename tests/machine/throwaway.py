# SPDX-License-Identifier: Apache-2.0
"""What a throwaway machine is asked, by its operating system: how it looks, and what to set on it.

No machine with FreeBSD has been asked yet: these commands are those of its manual pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Callable

from tests.support.agent_root import setting

Settings = Iterator[dict[str, Any]]


@dataclass(frozen=True)
class System:
    """``look`` is a script of sh(1) that shows everything that a tuning may touch, for a SERVICE.

    ``is_up`` says "up" once a boot is over. ``wishes`` makes settings from what the agent tells of
    the machine, for a service.
    """

    look: str
    is_up: str
    wishes: Callable[[Mapping[str, Any], str], Settings]


# What counts or moves by itself is left out. No remount takes the policy of a tmpfs back to none,
# which is local.
LINUX_LOOK = r"""
for nic in $(ls /sys/class/net); do
    for option in -l -g -x -k -c; do ethtool $option $nic 2>&1; done
done
grep . /sys/class/net/*/queues/*/rps_cpus /sys/class/net/*/queues/*/rps_flow_cnt
grep . /sys/class/net/*/queues/*/xps_cpus 2>/dev/null
sysctl -a 2>/dev/null | grep -E '^(net|vm|kernel.sched|kernel.numa)' | grep -v nf_conntrack_count
for file in enabled shmem_enabled defrag; do cat /sys/kernel/mm/transparent_hugepage/$file; done
cat /sys/kernel/debug/sched/migration_cost_ns
ip route; findmnt -rn -t tmpfs -o TARGET,OPTIONS | sed s/,mpol=local//
systemctl list-unit-files --no-legend; systemctl is-active irqbalance
pid=$(systemctl show -p MainPID SERVICE | cut -d= -f2)
grep -h -e allowed_list -e 'Max' /proc/$pid/status /proc/$pid/limits
find /etc -type f -not -path '*/machine-id' -exec md5sum {} + | sort -k 2
ls -A /var/lib/edgetune/tunings 2>/dev/null; ls /var/lib/edgetune/agent.py 2>/dev/null; true
"""
# -W are the parameters that can be written and count nothing.
FREEBSD_LOOK = r"""
ifconfig -a; netstat -rn | awk '{print $1, $2, $4}'
sysctl -aeW 2>/dev/null | grep -E '^(net|vm|hw|dev|kern\.(ipc|sched))'
kldstat | awk 'NR > 1 {print $5}' | sort
for irq in $(vmstat -ai | sed -n 's/^irq\([0-9]*\):.*/\1/p'); do cpuset -g -x $irq; done
bectl list -H | cut -f 1,2
service -e; pid=$(pgrep -o -x SERVICE)
procstat -h rlimit $pid | awk '{$1 = ""; print}'; ps -o nice= -p $pid
cpuset -g -p $pid | sed 's/^pid [0-9]*//'
find /etc /boot/loader.conf* /usr/local/etc -type f -exec md5 -r {} + | sort -k 2
ls -A /var/lib/edgetune/tunings 2>/dev/null; ls /var/lib/edgetune/agent.py 2>/dev/null; true
"""


def on_linux(facts: Mapping[str, Any], name: str) -> Settings:
    """A setting of every kind that needs no boot, for every network card."""
    yield setting("unit", {"unit": "irqbalance.service"}, {"active": "off", "enabled": "off"})
    for nic, known in facts["nics"].items():
        yield from _of_nic({"interface": nic}, known)
    yield setting("route.metric", {"family": "inet", "route": "default"}, {"initcwnd": 20})
    yield setting("memory.thp", {"file": "enabled"}, "never")
    yield setting("memory.watermarks", {"parameter": "watermark_scale_factor"}, "50")
    yield setting("memory.tmpfs_policy", {"mount": "/dev/shm"}, "interleave")
    yield setting("sched.migration_cost", {}, "400000")
    yield setting("sysctl", {"key": "net.core.somaxconn"}, "8192")
    yield setting("file", {"path": "/etc/edgetune-tried.conf"}, "a = 1\nb = 2\n")
    limit = {"service": name, "property": "LimitNOFILE"}
    yield setting("service.property", limit, "65536", restart=name)
    service = {"service": name}
    yield setting("memory.numa_policy", service, "interleave", restart=name)
    yield setting("cpu.service_affinity", service, "off_nic_irqs", restart=name)


def _of_nic(nic: dict[str, str], known: Mapping[str, Any]) -> Settings:
    most = (known["channels"] or {"max": {}})["max"].get("combined", 0)
    # Of two queues one is left, and one is what the table can name then.
    left = max(most // 2, 1)
    if most > 1:
        yield setting("nic.channels", nic, {"combined": left})
    if known["ring_max"]:
        yield setting("nic.ring", nic, {"rx": known["ring_max"]["rx"]})
    yield setting("nic.rss", nic, {"equal": left})
    yield setting("nic.features", nic, {"generic-receive-offload": "off"})
    yield setting("nic.coalesce", nic, {"rx-usecs": 40})
    yield setting("nic.irq_affinity", nic, "interleave")
    yield setting("nic.xps", nic, "0-1")
    yield setting("nic.rps", nic, "0-1")
    yield setting("nic.rfs", nic, "4096")


def on_freebsd(facts: Mapping[str, Any], name: str) -> Settings:
    """The same, but tcp.stack: connections to the machine would hold its module at a restore."""
    for nic in facts["nics"]:
        yield setting("nic.channels", {"interface": nic}, {"combined": 1})
        yield setting("nic.irq_affinity", {"interface": nic}, "interleave")
    yield setting("module", {"module": "cc_htcp"}, "loaded")
    yield setting("sysctl", {"key": "kern.ipc.soacceptqueue"}, "1024")
    yield setting("file", {"path": "/etc/edgetune-tried.conf"}, "a = 1\nb = 2\n")
    for what, value in (("LimitNOFILE", "65536"), ("Nice", "-5"), ("CPUAffinity", "0")):
        own = {"service": name, "property": what}
        yield setting("service.property", own, value, restart=name)


SYSTEMS: Mapping[str, System] = {
    "linux": System(
        look=LINUX_LOOK,
        is_up="systemctl is-system-running | grep -qxE 'running|degraded' && echo up",
        wishes=on_linux,
    ),
    # init(8) starts getty(8) after the last script of rc(8).
    "freebsd": System(
        look=FREEBSD_LOOK, is_up="pgrep -x getty >/dev/null && echo up", wishes=on_freebsd
    ),
}
