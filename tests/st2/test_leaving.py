# SPDX-License-Identifier: Apache-2.0
"""edgetune leaves a PoP on a running StackStorm: refused, told before, and done."""

from __future__ import annotations

from lab import pop as lab
from tests.st2.stackstorm import (
    HOME,
    PATIENCE,
    REAL,
    needs_stackstorm,
    run,
    start,
    status,
    typed,
    until_state,
    wait_for,
)
from tests.st2.test_by_itself import _hosts, _somaxconn, one_pop

pytestmark = [*needs_stackstorm, one_pop]
# Where edgetune writes on hosts; what programs say of themselves there is theirs.
FIND = "find /etc /var/lib /run -xdev -not -name '*.pid'"
TREE = f"{FIND} -printf '%p %M %U:%G %l\\n' | sort; {FIND} -type f -exec sha256sum {{}} + | sort"


def _trees() -> dict[str, list[str]]:
    """By host: all names, modes, owners, links and contents."""
    command = ["sh", "-c", TREE]
    told = {host: lab.console(HOME, host, command, timeout=60 * PATIENCE) for host in _hosts()}
    return {host: text.splitlines() for host, text in told.items()}


def test_a_pop_is_left_as_it_was(tuned: None) -> None:
    assert run("tune_congestion", pop="lab1")["status"] == "succeeded"
    treated = run("uninstall_agent", pop="lab1")
    assert treated["status"] == "failed"
    assert "roll_back_congestion pop=lab1" in treated["result"]["output"]["message"]
    assert run("roll_back_congestion", pop="lab1")["status"] == "succeeded"
    # Tests before this one used the hosts.
    assert run("uninstall_agent", pop="lab1")["status"] == "succeeded"
    before = _trees()
    begun = start("rollout_pop", tuning="accept_queue", **REAL)
    until_state("changing", begun)
    early = run("uninstall_agent", pop="lab1", take_back=True)
    assert early["status"] == "failed"
    output = wait_for(begun)["result"]["output"]
    rollout = output["rollout"]
    assert rollout in early["result"]["output"]["message"]
    assert output["outcome"] == "promoted", output

    refused = run("uninstall_agent", pop="lab1")
    assert refused["status"] == "failed"
    assert "accept_queue" in refused["result"]["output"]["message"]
    assert "take_back=true" in refused["result"]["output"]["message"]
    told = typed("uninstall_agent", pop="lab1", take_back=True, dry_run=True)
    assert (told["done"], sorted(told["removed"])) == ([], _hosts()), told
    assert "after taking back what stands" in told["message"]
    assert {_somaxconn(host) for host in _hosts()} == {"4096"}

    left = run("uninstall_agent", pop="lab1", take_back=True, reason="it was a test")
    output = left["result"]["output"]
    assert (left["status"], sorted(output["done"])) == ("succeeded", _hosts()), output
    assert (output["rollouts"], output["left"]) == ([rollout], {})
    assert status(rollout)["state"] == "rolled_back"
    assert {_somaxconn(host) for host in _hosts()} == {"8"}
    assert _trees() == before
