# SPDX-License-Identifier: Apache-2.0
"""Every kind of setting on a real machine, over a real reboot.

EDGETUNE_MACHINE is what runs a command there as root, such as ``ssh root@192.0.2.7``. It is changed
and rebooted, so let it be one that nobody needs: a virtual machine with systemd, nginx, network
cards with several queues and two NUMA nodes shows most.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from edgetune import AGENT_PROTOCOL
from edgetune.hosts.agent import bundle
from edgetune.hosts.agent.kinds import HANDLERS
from edgetune.hosts.conversation import BOOTSTRAP
from edgetune.hosts.fleet import packed
from tests.agent_root import setting

MACHINE = shlex.split(os.environ.get("EDGETUNE_MACHINE", ""))
SERVICE = os.environ.get("EDGETUNE_MACHINE_SERVICE", "nginx")
BOOT_SECONDS = 300
LONGEST = 300

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        not MACHINE, reason="EDGETUNE_MACHINE names no machine that may be changed and rebooted"
    ),
]

# Everything that a tuning may touch; what counts or moves by itself is left out. No remount takes
# the policy of a tmpfs back to none, which is local.
LOOK = r"""
for nic in $(ls /sys/class/net); do
    for option in -l -g -x -k -c; do ethtool $option $nic 2>&1; done
done
grep . /sys/class/net/*/queues/*/rps_cpus /sys/class/net/*/queues/*/rps_flow_cnt
grep . /sys/class/net/*/queues/*/xps_cpus 2>/dev/null
sysctl -a 2>/dev/null | grep -E '^(net|vm|kernel.sched|kernel.numa)' | grep -v nf_conntrack_count
cat /sys/kernel/mm/transparent_hugepage/{enabled,shmem_enabled,defrag}
cat /sys/kernel/debug/sched/migration_cost_ns
ip route; findmnt -rn -t tmpfs -o TARGET,OPTIONS | sed s/,mpol=local//
systemctl list-unit-files --no-legend; systemctl is-active irqbalance
pid=$(systemctl show -p MainPID SERVICE | cut -d= -f2)
grep -h -e allowed_list -e 'Max' /proc/$pid/status /proc/$pid/limits
find /etc -type f -not -path '*/machine-id' -exec md5sum {} + | sort -k 2
ls -A /var/lib/edgetune/tunings 2>/dev/null; ls /var/lib/edgetune/agent.py 2>/dev/null; true
"""


# What ssh(1) ends with where the connection itself fails.
NOT_CONNECTED = 255


class Lost(Exception):
    """The connection to the machine could not be made, or broke; ssh says why."""


def on_machine(command: str, given: bytes = b"") -> bytes:
    """What a command says; Lost where it was not seen to end."""
    try:
        done = subprocess.run(
            [*MACHINE, command], input=given, capture_output=True, timeout=LONGEST, check=False
        )
    except subprocess.TimeoutExpired:
        raise Lost(f"no end within {LONGEST} s: {command[:60]}") from None
    if done.returncode == NOT_CONNECTED:
        raise Lost(done.stderr.decode("utf-8", "replace").strip() or "ssh says nothing")
    return done.stdout


def reply_to(verb: str, **fields: Any) -> dict[str, Any]:
    """One round trip, as the controller has it; Lost where there is no answer."""
    source = packed(bundle.make())
    request = json.dumps({"protocol": AGENT_PROTOCOL, "verb": verb, **fields}).encode()
    told = on_machine(BOOTSTRAP, source + request)
    if not told.endswith(b"}\n"):
        raise Lost(f"{verb} was answered in part: {told[-60:]!r}")
    reply: dict[str, Any] = json.loads(told)
    return reply


def ask(verb: str, **fields: Any) -> dict[str, Any]:
    """The result of what is expected to go well."""
    reply = reply_to(verb, **fields)
    assert reply["ok"], reply
    result: dict[str, Any] = reply["result"]
    return result


def look() -> list[str]:
    """The machine as it is."""
    return on_machine(LOOK.replace("SERVICE", SERVICE)).decode().splitlines()


def wishes(facts: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A setting of every kind, for every network card."""
    yield setting("unit", {"unit": "irqbalance.service"}, {"active": "off", "enabled": "off"})
    for nic, known in facts["nics"].items():
        yield from wishes_for_nic({"interface": nic}, known)
    yield setting("route.metric", {"family": "inet", "route": "default"}, {"initcwnd": 20})
    yield setting("memory.thp", {"file": "enabled"}, "never")
    yield setting("memory.watermarks", {"parameter": "watermark_scale_factor"}, "50")
    yield setting("memory.tmpfs_policy", {"mount": "/dev/shm"}, "interleave")
    yield setting("sched.migration_cost", {}, "400000")
    yield setting("sysctl", {"key": "net.core.somaxconn"}, "8192")
    yield setting("file", {"path": "/etc/edgetune-tried.conf"}, "a = 1\nb = 2\n")
    limit = {"service": SERVICE, "property": "LimitNOFILE"}
    yield setting("service.property", limit, "65536", restart=SERVICE)
    service = {"service": SERVICE}
    yield setting("memory.numa_policy", service, "interleave", restart=SERVICE)
    yield setting("cpu.service_affinity", service, "off_nic_irqs", restart=SERVICE)


def wishes_for_nic(nic: dict[str, str], known: dict[str, Any]) -> Iterator[dict[str, Any]]:
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


def plan(settings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ask("plan", tuning="t", digest="sha256:1", settings=settings)[
        "settings"
    ]
    return rows


def apply(settings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Apply as many of them as drivers really take; those that were applied come back."""
    seen = {row["id"]: {k: row[k] for k in ("runtime", "persistent")} for row in plan(settings)}
    head = {"epoch": 1, "rollout": "r1", "tuning": "t", "digest": "sha256:1"}
    within = {"confirm_within": 600, "grace_boots": 1}
    reply = reply_to("apply", settings=settings, expect=seen, **head, **within)
    if reply["ok"]:
        assert reply["result"]["state"] == "provisional"
        return settings
    why = reply["error"]["message"]
    refused = [own for own in settings if why.startswith(f"{own['id']}: cannot be set to")]
    assert refused and why.endswith("Operation not supported; undone"), why
    print(why)
    return apply([own for own in settings if own not in refused])


def reboot() -> None:
    boot_id = ask("facts")["boot_id"]
    assert ask("reboot", epoch=1, boot_id=boot_id)["rebooting"]
    end = time.monotonic() + BOOT_SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(Lost):
            told = on_machine("cat /proc/sys/kernel/random/boot_id; systemctl is-system-running")
            now, _, state = told.decode().partition("\n")
            if now not in ("", boot_id) and state.strip() in ("running", "degraded"):
                return
        time.sleep(2)
    raise AssertionError("the machine did not come back")


def wrong(settings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is not as wanted."""
    rows = ask("verify", tuning="t", settings=settings)["settings"]
    return [row for row in rows if not row["ok"]]


@pytest.fixture(scope="module")
def chosen() -> list[dict[str, Any]]:
    """What the machine supports, as far as a plan can tell."""
    wanted = [own for own in wishes(ask("facts")) if own["kind"] in HANDLERS]
    reasons = {row["id"]: row["reason"] for row in plan(wanted) if row["status"] == "unsupported"}
    print(*(f"{id}: {why}" for id, why in reasons.items()), sep="\n")
    return [own for own in wanted if own["id"] not in reasons]


def changes(before: list[str], after: list[str]) -> list[str]:
    return list(difflib.unified_diff(before, after, n=0, lineterm=""))


def test_all_that_it_supports_is_set_and_goes_without_a_trace(chosen: list[dict[str, Any]]) -> None:
    before = look()
    try:
        applied = apply(chosen)
        print("applied: " + ", ".join(own["id"] for own in applied))
        assert not wrong(applied)
        assert changes(before, look())
    finally:
        ask("restore", epoch=1, tuning="t")
    left = changes(before, look())
    assert not left, "\n".join(left)


def test_it_survives_a_boot(chosen: list[dict[str, Any]]) -> None:
    def but_random() -> list[str]:
        """Without the keys of RSS, and what follows from the memory that is free at a boot."""
        other = r".*([0-9a-f]{2}:){10,}[0-9a-f]{2}|vm\.(user_reserve|min_free)_kbytes.*"
        return [line for line in look() if not re.fullmatch(other, line)]

    before = but_random()
    try:
        applied = apply(chosen)
        reboot()
        assert not wrong(applied)
        assert ask("confirm", epoch=1, tuning="t", settings=applied)["confirmed"]
    finally:
        ask("restore", epoch=1, tuning="t")
    left = changes(before, but_random())
    assert not left, "\n".join(left)
