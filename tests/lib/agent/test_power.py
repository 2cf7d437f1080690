# SPDX-License-Identifier: Apache-2.0
"""The power fails at every step of what an agent does: what was not synced is gone.

`test_faults.py` kills the agent, after which the disk still gets all that it wrote.
Here only what was synced is there (`tests/support/dying.py`). `tests/machine/test_power_cuts.py`
cuts real machines.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgetune.agent.dispatch import answer as answer_below
from tests.lib.agent.test_faults import end_after_boot, settled
from tests.support.agent_root import (
    AgentRoot,
    below,
    content,
    file,
    nginx,
    request,
    setting,
    sysctl,
    thp,
    without_boot_id,
)
from tests.support.dying import cut, steps
from tests.support.freebsd import freebsd_host
from tests.support.kernels import GRACE

pytestmark = [pytest.mark.processes, pytest.mark.slow]

INIT = "systemd"

LIVE = [thp("never"), sysctl("4096"), nginx("LimitNOFILE", "65536")]
STRIDE = 4
"""Every fourth step, others with `entries` than without: there are some eighty."""


@pytest.fixture
def host(host: AgentRoot) -> AgentRoot:
    for name in ("run", "var/lib", "etc/security/limits.d"):
        (host.path / name).mkdir(parents=True, exist_ok=True)
    return host


@pytest.mark.parametrize("entries", [False, True])
@pytest.mark.parametrize("verb", ["apply", "restore"])
def test_a_power_cut_at_any_step_leaves_all_or_nothing(
    host: AgentRoot, verb: str, entries: bool
) -> None:
    before, tree = settled(host), without_boot_id(host.tree())
    change = request("apply", **host.change(*LIVE))
    restore = request("restore", epoch=1, tuning="t")
    ends = set()
    for step in steps(2 * entries, STRIDE):
        if verb == "restore":
            assert answer_below(str(host.path), change)["ok"]
        died = cut(host, change if verb == "apply" else restore, step, entries)
        ends.add(end_after_boot(host, before, *LIVE))
        reply = answer_below(str(host.path), restore)
        assert reply["ok"], (step, reply)
        assert without_boot_id(host.tree()) == tree and host.leftovers() <= {"epoch"}, step
        if not died:
            assert ends == {"old", "new"} and step > 30
            return


KEPT = [
    sysctl("4096"),
    nginx("LimitNOFILE", "65536"),
    file("/etc/security/limits.d/web.conf", "www - nofile 65536\n"),
]
DROP_IN = "etc/systemd/system/nginx.service.d/90-edgetune-0001-t.conf"


def ask_for(*settings: dict[str, Any], **changes: Any) -> dict[str, Any]:
    fields = {"epoch": 1, "dry_run": False, "tuning": "t", "digest": "sha256:1", "rollout": "r1"}
    return {**fields, "settings": list(settings or KEPT), **changes}


def hand_over(host: AgentRoot, *settings: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return host.ask("hand_over", **ask_for(*settings, **changes))


def marks(host: AgentRoot) -> list[str]:
    """What tells of edgetune below the root: names of files, and files by their content."""
    start, found = len(str(host.path)), list[str]()
    for entry in below(str(host.path), ["stub"]):
        text, own = content(entry), entry.path[start:]
        # The stubs are of the test.
        told = "edgetune" in own or (isinstance(text, bytes) and b"edgetune" in text)
        found += [own] if told and "/sbin/" not in own else []
    return found


def stands(host: AgentRoot, *settings: dict[str, Any]) -> bool:
    """Whether all is as wanted, now and after a boot."""
    return all(row["status"] == "noop" for row in host.plan(*(settings or KEPT)))


@pytest.mark.long
@pytest.mark.parametrize("entries", [False, True])
@pytest.mark.parametrize("then", ["hand_over", "restore"])
def test_a_power_cut_leaves_a_tuning_that_stands_or_is_handed_over(
    host: AgentRoot, then: str, entries: bool
) -> None:
    """Its effect is there after any boot. What was begun is finished, or taken back wholly."""
    before = {name: was for name, was in host.tree().items() if "boot_id" not in name}
    ends = set()
    for step in steps(2 * entries, STRIDE):
        host.apply(*KEPT)
        died = cut(host, request("hand_over", **ask_for()), step, entries)
        assert host.boot().stderr == ""
        assert host.read("proc/sys/net/core/somaxconn") == "4096\n" and stands(host), step
        ends.add(host.state())
        if then == "hand_over":
            hand_over(host)
            host.ask("uninstall", epoch=3, dry_run=False)
            assert marks(host) == [] and stands(host), step
            for name in ("etc/sysctl.d/89-t.conf", DROP_IN.replace("90-edgetune-0001", "89")):
                (host.path / name).unlink()
            (host.path / "etc/security/limits.d/web.conf").unlink()
            host.write("proc/sys/net/core/somaxconn", "128\n")
            host.boot()
        elif host.state() == "confirmed":
            assert answer_below(str(host.path), request("restore", epoch=1, tuning="t"))["ok"]
            now = {name: was for name, was in host.tree().items() if "boot_id" not in name}
            assert now == before, step
        if not died:
            assert ends == {"confirmed", "none"} and step > 15
            return
        if then == "restore" and "none" in ends:
            return


TOPS = ("etc", "var", "boot", "usr/local/etc")
RACK = [
    setting("module", {"module": "tcp_rack"}, "loaded"),
    setting("tcp.stack", {}, "rack"),
    sysctl("1024", "kern.ipc.soacceptqueue"),
]
TUNABLE = [setting("loader.tunable", {"tunable": "hw.ix.rxd"}, "4096")]
NEW = [setting("kernel.boot_environment", {}, "new")]


@pytest.mark.long
@pytest.mark.parametrize("entries", [False, True])
@pytest.mark.parametrize("verb", ["apply", "restore"])
@pytest.mark.parametrize("wanted", [RACK, TUNABLE, NEW], ids=["live", "booted", "new"])
def test_a_power_cut_of_freebsd_leaves_all_or_nothing(
    tmp_path: Path, wanted: list[dict[str, Any]], verb: str, entries: bool
) -> None:
    """What a boot tries is taken back by the boot after the one that tried it."""
    asks = {} if wanted is RACK else GRACE
    with freebsd_host(tmp_path / "host") as host:
        before, kernel = host.settled(), host.in_kernel
        change = request("apply", **host.change(*wanted, **asks))
        restore = request("restore", epoch=1, tuning="t")
        ends = set()
        for step in steps(2 * entries, STRIDE):
            if verb == "restore":
                assert answer_below(str(host.path), change)["ok"]
            died = cut(host, change if verb == "apply" else restore, step, entries, TOPS)
            assert host.boot_anew() == [], step
            new = host.ask("verify", tuning="t", settings=wanted)["verified"]
            ends.add("new" if new else "old")
            if asks:
                host.boot_anew()
                host.boot_anew()
            if not new or asks:
                assert (host.settled(), host.in_kernel) == (before, kernel), step
            reply = answer_below(str(host.path), restore)
            assert reply["ok"], (step, reply)
            assert (host.settled(), host.in_kernel) == (before, kernel), step
            assert host.leftovers() <= {"epoch"}, step
            if not died:
                assert "old" in ends and step > 20
                assert verb == "restore" or "new" in ends
                return
