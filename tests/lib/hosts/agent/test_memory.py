# SPDX-License-Identifier: Apache-2.0
"""Watermarks, NUMA policies of services and of tmpfs, and the scheduler's migration cost."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.documents.reading import encoded
from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.kinds import memory_watermarks
from edgetune.hosts.agent.kinds.memory_tmpfs_policy import Mount
from edgetune.hosts.agent.kinds.memory_watermarks import steps
from edgetune.rendering import render
from edgetune.tuning import load_tuning
from edgetune.vocabulary.kinds import sched_migration_cost
from tests.support import ROOT
from tests.support.agent_programs import CACHE, Systemd, Tmpfs, instead
from tests.support.agent_root import NGINX_DROP_INS, THP, NearRoot, setting, sysctl, thp

MIN_FREE = "proc/sys/vm/min_free_kbytes"
SCALE = "proc/sys/vm/watermark_scale_factor"
GIB = 1 << 20


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NearRoot:
    """256 GiB on two nodes, the second of which has the less."""
    monkeypatch.setattr(memory_watermarks, "PAUSE", 0)
    root = NearRoot(tmp_path / "host")
    root.patch = monkeypatch
    root.write("proc/meminfo", f"MemTotal: {256 * GIB} kB\n")
    give_nodes(root, 160 * GIB, 96 * GIB, 0)
    root.write(MIN_FREE, "67584\n")
    root.write(SCALE, "10\n")
    root.write("proc/sys/vm/watermark_boost_factor", "15000\n")
    return root


def give_nodes(root: NearRoot, *sizes: int) -> None:
    """Have NUMA nodes with so many kB each."""
    shutil.rmtree(root.path / "sys/devices/system/node", ignore_errors=True)
    for node, size in enumerate(sizes):
        text = f"Node {node} MemTotal:       {size} kB\nNode {node} MemFree:  7 kB\n"
        root.write(f"sys/devices/system/node/node{node}/meminfo", text)


def watermark(value: int, parameter: str = "min_free_kbytes", **more: Any) -> dict[str, Any]:
    return setting("memory.watermarks", {"parameter": parameter}, str(value), **more)


def written(patch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Every text that the agent writes into the kernel's files, by name of the file."""
    texts: list[tuple[str, str]] = []
    real = Host.write_attribute

    def poke(host: Host, name: str, text: str) -> None:
        texts.append((name.rpartition("/")[2], text.strip()))
        real(host, name, text)

    patch.setattr(Host, "write_attribute", poke)
    return texts


def test_watermarks_go_up_in_steps_and_come_back_at_once(host: NearRoot) -> None:
    texts, pauses = written(host.patch), list[float]()
    host.patch.setattr(memory_watermarks, "PAUSE", 0.25)
    host.patch.setattr(time, "sleep", pauses.append)
    with host.applied(watermark(GIB, only="raise")):
        numbers = ["135168", "270336", "540672", "1048576"]
        assert texts == [("min_free_kbytes", number) for number in numbers]
        assert pauses == [0.25] * 3, (
            "the kernel has time between the steps, and none after the last"
        )
        kept = host.read("etc/sysctl.d/90-edgetune-0001-t.watermarks.conf")
        assert kept.splitlines()[1:] == ["vm.min_free_kbytes = 1048576"]
        del texts[:]
    assert texts == [("min_free_kbytes", "67584")]


@pytest.mark.processes
def test_the_tuning_asks_for_a_share_of_the_memory(host: NearRoot) -> None:
    tuning = load_tuning(ROOT / "tunings/memory_watermarks.yaml")
    own = encoded(render(tuning, host.ask("facts")))
    assert [one["value"] for one in own] == ["1048576", "40"], "1 GiB of 256 GiB"
    with host.applied(*own):
        assert (host.read(MIN_FREE), host.read(SCALE)) == ("1048576\n", "40\n")
    host.write("proc/meminfo", f"MemTotal: {64 * GIB} kB\n")
    assert render(tuning, host.ask("facts"))[0].value == "268435"


def test_a_step_that_the_kernel_does_not_take_is_undone(host: NearRoot) -> None:
    before, poke = host.tree(), Host.write_attribute

    def take_another(own: Host, name: str, text: str) -> None:
        poke(own, name, "300000\n" if text == "540672\n" else text)

    host.patch.setattr(Host, "write_attribute", take_another)
    error = host.fail("apply", **host.change(watermark(GIB)))
    assert "reads 300000 after 540672 was written; undone" in error["message"]
    assert host.tree() == before


@given(now=st.integers(0, 2**31), wanted=st.integers(0, 2**31))
def test_no_step_more_than_doubles(now: int, wanted: int) -> None:
    way = [now, *steps(now, wanted)]
    assert way[-1] == wanted
    if wanted > now > 0:
        assert all(a < b <= 2 * a for a, b in zip(way, way[1:]))
        assert len(way) <= 33
    else:
        assert len(way) == 2, "down, or from nothing, in one step"


OF_THE_NODE = "are more than 5 % of the smallest NUMA node, which has 100663296 kB"
OF_ALL = "are more than 5 % of the memory, which has 268435456 kB"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (f"{5 * GIB}", f"5242880 kB {OF_THE_NODE}"),
        (f"{13 * GIB}", f"13631488 kB {OF_ALL}"),
        ("1023", "1023 kB are less than 1024 kB, which the kernel needs"),
        # What only the kernel takes for a number.
        *(
            (text, f"{text} is no number of kB")
            for text in ("0x7fffffff", "+13631488", "1363148 1")
        ),
    ],
)
def test_free_memory_that_a_host_cannot_spare_is_refused_with_the_numbers(
    host: NearRoot, value: str, why: str
) -> None:
    assert host.reason(sysctl(value, "vm.min_free_kbytes")) == why
    if value.isdigit() and int(value) >= 1024:
        assert host.reason(watermark(int(value))) == why
    for own in (
        *(watermark(kb) for kb in (1024, 4 * GIB)),
        *(sysctl(f"{kb}", "vm/min_free_kbytes") for kb in (1024, 4 * GIB)),
        watermark(3000, "watermark_scale_factor"),
    ):
        assert host.plan(own)[0]["status"] == "change"
    give_nodes(host)
    assert host.plan(watermark(12 * GIB))[0]["status"] == "change", "the whole memory counts"


@pytest.mark.parametrize("value", [0, 3001])
def test_a_scale_that_the_kernel_would_not_take_is_a_bad_request(
    host: NearRoot, value: int
) -> None:
    own = watermark(value, "watermark_scale_factor")
    error = host.fail("plan", tuning="t", digest="d", settings=[own])
    assert (error["reason"], error["field"]) == ("bad_request", "settings[0].value")


def test_a_later_file_that_sets_a_watermark_is_named(host: NearRoot) -> None:
    host.write("etc/sysctl.d/99-site.conf", "vm.min_free_kbytes = 70000\n")
    row = host.plan(watermark(GIB))[0]
    assert row["persistent"] == "70000"
    assert row["reason"] == "/etc/sysctl.d/99-site.conf is read after ours and sets it to 70000"


@pytest.mark.parametrize("where", [sched_migration_cost.OLD, sched_migration_cost.NEW])
def test_the_migration_cost_is_where_the_kernel_has_it(host: NearRoot, where: str) -> None:
    own = setting("sched.migration_cost", {}, "5000000")
    file = host.write(where[1:], "500000\n")
    with host.applied(own):
        assert file.read_text() == "5000000\n"
        file.write_text("500000\n")
        assert host.plan(own)[0]["reason"] == "differs now"
        assert host.boot_hook() == []
        assert file.read_text() == "5000000\n"
        assert host.verifies(own)


def test_a_migration_cost_that_cannot_be_reached_says_why(host: NearRoot) -> None:
    own = setting("sched.migration_cost", {}, "5000000")
    assert "debugfs is not mounted" in host.reason(own)
    host.write(sched_migration_cost.NEW[1:], "500000\n")
    read = Host.read

    def locked_down(own: Host, name: str) -> bytes:
        if "debug" in name:
            raise PermissionError(1, "Operation not permitted")
        return read(own, name)

    host.patch.setattr(Host, "read", locked_down)
    assert host.reason(own) == f"{sched_migration_cost.NEW}: Operation not permitted"


def test_huge_pages_leave_the_watermarks_alone(host: NearRoot) -> None:
    """The kernel raises min_free_kbytes to what khugepaged likes to have, and never lowers it."""
    poke = Host.write_attribute

    def khugepaged(own: Host, name: str, text: str) -> None:
        poke(own, name, text)
        if name.endswith("transparent_hugepage/enabled"):
            most = max(int(host.read(MIN_FREE)), 112640)
            host.write(MIN_FREE, f"{most}\n")

    host.patch.setattr(Host, "write_attribute", khugepaged)
    with host.applied(thp("always")):
        assert host.read(f"{THP}/enabled") == "always\n" and host.read(MIN_FREE) == "67584\n"


def numa(value: str) -> dict[str, Any]:
    return setting("memory.numa_policy", {"service": "nginx"}, value, restart="nginx")


@pytest.mark.parametrize("maps", [True, False], ids=["numa_maps", "systemctl"])
@pytest.mark.parametrize(
    ("value", "lines"),
    [
        ("interleave", ["NUMAPolicy=interleave", "NUMAMask=", "NUMAMask=all"]),
        ("preferred:1", ["NUMAPolicy=preferred", "NUMAMask=", "NUMAMask=1"]),
        ("bind:0-1", ["NUMAPolicy=bind", "NUMAMask=", "NUMAMask=0-1"]),
        ("local", ["NUMAPolicy=local", "NUMAMask="]),
    ],
)
def test_a_service_gets_its_memory_by_policy(
    host: NearRoot, value: str, lines: list[str], maps: bool
) -> None:
    systemd = instead(host.patch, Systemd(host))
    systemd.numa_maps = maps
    systemd.start()
    row = host.plan(numa(value))[0]
    assert (row["runtime"], row["persistent"], row["status"]) == ("default", None, "change")
    with host.applied(numa(value)) as applied:
        assert applied["restarted"] == ["nginx"]
        kept = host.read(f"{NGINX_DROP_INS}/90-edgetune-0001-t.numa.conf")
        assert kept.splitlines()[1:] == ["[Service]", *lines]
        assert host.plan(numa(value))[0]["status"] == "noop"
    assert systemd.restarts == 2 and systemd.policy == ""


def test_a_service_that_sets_its_own_policy_is_found(host: NearRoot) -> None:
    systemd = instead(host.patch, Systemd(host))
    host.patch.setattr(systemd, "maps", lambda: "556a5d6c8000 bind:0 heap anon=120\n")
    error = host.fail("apply", **host.change(numa("interleave")))
    assert "memory.numa_policy:nginx: the main process has bind:0; undone" in error["message"]
    assert not host.exists(f"{NGINX_DROP_INS}/90-edgetune-0001-t.numa.conf")


def test_the_pages_of_a_service_are_walked_once(host: NearRoot) -> None:
    """The kernel holds a lock of the process meanwhile, and a cache has many."""
    instead(host.patch, Systemd(host))
    walks, read = [], Host.read

    def count(kernel: Host, name: str) -> bytes:
        walks.extend([name] if name.endswith("/numa_maps") else [])
        return read(kernel, name)

    host.patch.setattr(Host, "read", count)
    change = host.change(numa("interleave"))
    assert not walks
    host.ask("apply", **change)
    assert walks == ["/proc/77/numa_maps"]
    assert host.verifies(numa("interleave"))
    assert host.ask("sample")["drift"] == []
    host.restore()
    assert len(walks) == 1


def test_what_other_drop_ins_say_of_numa(host: NearRoot) -> None:
    host.write(f"{NGINX_DROP_INS}/10-site.conf", "[Service]\nNUMAPolicy=bind\nNUMAMask=1\n")
    systemd = instead(host.patch, Systemd(host))
    row = host.plan(numa("interleave"))[0]
    assert (row["runtime"], row["persistent"]) == ("bind:1", "bind:1")
    host.apply(numa("bind:0"))
    assert systemd.mask == "0", "the mask of before is gone"
    host.restore()
    assert systemd.mask == "1"
    host.write(f"{NGINX_DROP_INS}/95-site.conf", "[Service]\nNUMAMask=1\n")
    reason = host.reason(numa("bind:0"))
    assert reason.endswith("/95-site.conf is read after ours and sets it to 1")


def test_hosts_that_have_no_policies(host: NearRoot) -> None:
    systemd = instead(host.patch, Systemd(host, version=242))
    assert host.reason(numa("interleave")) == "NUMAPolicy needs systemd 243 or newer"
    systemd.version = 243
    assert host.reason(numa("bind:0-2")) == "the host has memory on NUMA nodes 0-1, not on 2"
    give_nodes(host, 256 * GIB, 0)
    assert host.reason(numa("interleave")) == "the host has memory on one NUMA node only"


def tmpfs(value: str, mount: str = CACHE) -> dict[str, Any]:
    return setting("memory.tmpfs_policy", {"mount": mount}, value)


@pytest.mark.parametrize(
    ("value", "mpol"),
    [("interleave", "interleave:0-1"), ("interleave:1", "interleave:1"), ("prefer:1", "prefer:1")],
)
def test_a_tmpfs_gets_a_policy_and_keeps_it(host: NearRoot, value: str, mpol: str) -> None:
    own = tmpfs(value)
    mount = instead(host.patch, Tmpfs(host))
    assert host.plan(own)[0]["runtime"] == "local"
    host.apply(own)
    assert mount.mpol == mpol and "size=16384k" in host.read("proc/self/mountinfo")
    assert host.verifies(own) and host.plan(own)[0]["status"] == "noop"
    mount.mpol = ""
    mount.show()
    assert host.boot_hook() == [] and mount.mpol == mpol
    host.restore()
    assert mount.mpol == "local", "no remount brings back that there was none"
    assert not host.restore()["changed"]


def test_a_tmpfs_that_had_a_policy_gets_it_back(host: NearRoot) -> None:
    mount = instead(host.patch, Tmpfs(host, "bind=static:0,1"))
    with host.applied(tmpfs("interleave")):
        assert mount.mpol == "interleave:0-1"
    assert mount.mpol == "bind=static:0,1"


def test_what_is_no_tmpfs_or_not_there(host: NearRoot) -> None:
    mount = instead(host.patch, Tmpfs(host))
    assert host.reason(tmpfs("local", "/")) == "/ is no tmpfs: there is a ext4"
    assert host.reason(tmpfs("local", "/mnt")) == "/mnt is no tmpfs: there is nothing mounted"
    says = "/srv is a part of a tmpfs that is mounted elsewhere"
    assert host.reason(tmpfs("local", "/srv")) == says
    assert host.reason(tmpfs("bind:0-2")).endswith("not on 2")
    assert not mount.calls


def test_policies_in_mountinfo() -> None:
    line = "41 40 0:39 / /a\\040b\\134 rw - tmpfs a\\040b rw,mpol=interleave:0,2-3,inode64"
    mount = Mount(line)
    assert (mount.point, mount.source, mount.policy) == ("/a b\\", "a b", "interleave:0,2-3")
    policies = {"rw,mpol=local": "local", "rw,mpol=weighted interleave:0": "weighted interleave:0"}
    for options, policy in policies.items():
        assert Mount(f"41 40 0:39 / /a rw - tmpfs x {options}").policy == policy


IN_A_NAMESPACE = """
import json, subprocess, sys
sys.path.insert(0, sys.argv[1])
from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.kinds.memory_tmpfs_policy import MemoryTmpfsPolicy

point, options = sys.argv[2], "noexec,nosuid,size=16m,nr_inodes=500,mode=1750,uid=33,gid=44"
subprocess.run(["mount", "-t", "tmpfs", "-o", options, "cache", point], check=True)
kind, target = MemoryTmpfsPolicy(Host("/")), {"mount": point}
found = []

def look():
    mount = kind._mount(target)
    found.append([mount.flags, mount.options, kind.runtime(target)])

look()
was = kind.snapshot(target)
for policy in ("interleave", "bind:0", "prefer:0", "local"):
    kind.apply(target, policy)
    look()
kind.apply(target, "interleave")
kind.restore(target, was)
look()
print(json.dumps(found))
"""


@pytest.mark.processes
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_a_real_tmpfs_keeps_all_else(tmp_path: Path) -> None:
    """In a mount namespace of its own, which ends with the process."""
    point = tmp_path / "a tmpfs"
    point.mkdir()
    own = ["unshare", "--mount", "--propagation", "private", "--", sys.executable]
    command = [*own, "-c", IN_A_NAMESPACE, str(ROOT / "lib"), str(point)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if "unshare failed" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len({flags for flags, _, _ in found}) == 1 and "noexec" in found[0][0]
    assert len({re.sub(",mpol=.*", "", options) for _, options, _ in found}) == 1
    policies = [policy for _, _, policy in found]
    assert policies == ["local", "interleave", "bind:0", "prefer:0", "local", "local"]
    assert str(point) not in Path("/proc/self/mountinfo").read_text()
