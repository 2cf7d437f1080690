# SPDX-License-Identifier: Apache-2.0
"""The power fails at every step of an apply and of a restore: what was not synced is gone.

`test_faults.py` kills the agent, after which the disk still gets all that it wrote.
Here only what was synced is there (`tests/support/dying.py`). `tests/machine/test_power_cuts.py`
cuts real machines.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgetune.agent.dispatch import answer as answer_below
from tests.lib.agent.test_faults import end_after_boot, settled
from tests.support.agent_root import (
    AgentRoot,
    near_root,
    nginx,
    request,
    sysctl,
    thp,
    without_boot_id,
)
from tests.support.dying import cut

pytestmark = [pytest.mark.processes, pytest.mark.slow]

SETTINGS = [thp("never"), sysctl("4096"), nginx("LimitNOFILE", "65536")]
MOST_STEPS = 500
STRIDE = 4
"""Every fourth step, others with `entries` than without: there are some eighty."""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[AgentRoot]:
    with near_root(tmp_path / "host", init="systemd") as root:
        (root.path / "var/lib").mkdir(parents=True)
        yield root


@pytest.mark.parametrize("entries", [False, True])
@pytest.mark.parametrize("verb", ["apply", "restore"])
def test_a_power_cut_at_any_step_leaves_all_or_nothing(
    host: AgentRoot, verb: str, entries: bool
) -> None:
    before, tree = settled(host), without_boot_id(host.tree())
    change = request("apply", **host.change(*SETTINGS))
    restore = request("restore", epoch=1, tuning="t")
    ends = set()
    for step in range(2 * entries, MOST_STEPS, STRIDE):
        if verb == "restore":
            assert answer_below(str(host.path), change)["ok"]
        died = cut(host, change if verb == "apply" else restore, step, entries)
        ends.add(end_after_boot(host, before, *SETTINGS))
        reply = answer_below(str(host.path), restore)
        assert reply["ok"], (step, reply)
        assert without_boot_id(host.tree()) == tree and host.leftovers() <= {"epoch"}, step
        if not died:
            assert ends == {"old", "new"} and step > 30
            return
    raise AssertionError("it never came to an end")
