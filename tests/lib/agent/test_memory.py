# SPDX-License-Identifier: Apache-2.0
"""Watermarks, NUMA policies of services and of tmpfs, and the scheduler's migration cost."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.agent.kinds.memory_watermarks import steps
from edgetune.agent.readings import Mount
from tests.support import ROOT


@given(now=st.integers(0, 2**31), wanted=st.integers(0, 2**31))
def test_no_step_more_than_doubles(now: int, wanted: int) -> None:
    way = [now, *steps(now, wanted)]
    assert way[-1] == wanted
    if wanted > now > 0:
        assert all(a < b <= 2 * a for a, b in zip(way, way[1:]))
        assert len(way) <= 33
    else:
        assert len(way) == 2, "down, or from nothing, in one step"


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
from edgetune.agent.host import Host
from edgetune.agent.kinds.memory_tmpfs_policy import MemoryTmpfsPolicy

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
