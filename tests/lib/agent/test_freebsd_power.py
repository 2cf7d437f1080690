# SPDX-License-Identifier: Apache-2.0
"""The power of a host with FreeBSD fails at every step of an apply and of a restore."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgetune.agent.dispatch import answer as answer_below
from tests.lib.agent.test_power import MOST_STEPS
from tests.support.agent_root import request, setting, sysctl
from tests.support.dying import cut
from tests.support.freebsd import freebsd_host
from tests.support.kernels import GRACE

pytestmark = [pytest.mark.processes, pytest.mark.slow]

TOPS = ("etc", "var", "boot", "usr/local/etc")
STRIDE = 4
LIVE = [
    setting("module", {"module": "tcp_rack"}, "loaded"),
    setting("tcp.stack", {}, "rack"),
    sysctl("1024", "kern.ipc.soacceptqueue"),
]
BOOTED = [setting("loader.tunable", {"tunable": "hw.ix.rxd"}, "4096")]
NEW = [setting("kernel.boot_environment", {}, "new")]


@pytest.mark.long
@pytest.mark.parametrize("entries", [False, True])
@pytest.mark.parametrize("verb", ["apply", "restore"])
@pytest.mark.parametrize("wanted", [LIVE, BOOTED, NEW], ids=["live", "booted", "new"])
def test_a_power_cut_at_any_step_leaves_all_or_nothing(
    tmp_path: Path, wanted: list[dict[str, Any]], verb: str, entries: bool
) -> None:
    """What a boot tries is taken back by the boot after the one that tried it."""
    asks = {} if wanted is LIVE else GRACE
    with freebsd_host(tmp_path / "host") as host:
        before, kernel = host.settled(), host.in_kernel
        change = request("apply", **host.change(*wanted, **asks))
        restore = request("restore", epoch=1, tuning="t")
        ends = set()
        for step in range(2 * entries, MOST_STEPS, STRIDE):
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
        raise AssertionError("it never came to an end")
