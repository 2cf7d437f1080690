# SPDX-License-Identifier: Apache-2.0
"""Restoring the runtime values of some settings in place, while the rest waits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_root import (
    THP,
    AgentRoot,
    agent_root,
    near_root,
    nginx,
    rps,
    sysctl,
    thp,
    until,
    without_boot_id,
)

pytestmark = pytest.mark.processes

SOMAXCONN = "sysctl:net.core.somaxconn"
EVERYTHING = [rps("0-3"), thp("never"), sysctl("4096"), nginx("LimitNOFILE", "65536")]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[AgentRoot]:
    with near_root(tmp_path / "host") as root:
        yield root


def live(host: AgentRoot, *names: str, **changes: Any) -> dict[str, Any]:
    return host.ask("restore", **{"epoch": 1, "tuning": "t", "live": list(names), **changes})


def restarts(host: AgentRoot) -> int:
    return len([line for line in host.commands if "restart" in line])


def test_only_the_named_runtime_values_come_back(host: AgentRoot) -> None:
    before = host.tree()
    host.apply(*EVERYTHING)
    applied, restarted = host.tree(), restarts(host)
    result = live(host, SOMAXCONN)
    assert result == {
        "changed": True,
        "diff": [
            {
                "id": SOMAXCONN,
                "before": {"runtime": "4096", "persistent": "4096"},
                "after": {"runtime": "128", "persistent": "4096"},
            }
        ],
        "restarted": [],
        "boot_id": host.boot_id,
        "nothing_to_restore": False,
    }
    differing = {name for name, was in host.tree().items() if applied.get(name) != was}
    assert differing == {"proc/sys/net/core/somaxconn"}
    assert host.read("proc/sys/net/core/somaxconn") == "128\n"
    assert host.read(f"{THP}/enabled") == "never\n"
    assert restarts(host) == restarted and host.state() == "restoring"
    rest = host.restore()
    assert rest["changed"] and rest["restarted"] == ["nginx"]
    assert host.tree() == before and host.leftovers() == {"epoch"}


def test_repeated_it_changes_nothing(host: AgentRoot) -> None:
    host.apply(*EVERYTHING)
    live(host, SOMAXCONN, "memory.thp:enabled")
    between = host.tree()
    again = live(host, SOMAXCONN, "memory.thp:enabled")
    assert (again["changed"], again["diff"], again["nothing_to_restore"]) == (False, [], False)
    assert host.tree() == between
    assert [row["id"] for row in live(host, "nic.rps:eth0")["diff"]] == ["nic.rps:eth0"]


def test_nothing_is_done_without_a_journal_for_another_or_for_what_a_tuning_has_not(
    host: AgentRoot,
) -> None:
    assert live(host, SOMAXCONN)["nothing_to_restore"]
    host.apply(sysctl("4096"))
    error = host.fail("restore", epoch=1, tuning="t", live=[SOMAXCONN, "memory.thp:enabled"])
    assert (error["reason"], error["field"]) == ("bad_request", "live[1]")
    other = live(host, SOMAXCONN, rollout="r2")
    assert other["nothing_to_restore"] and not other["changed"]
    assert host.read("proc/sys/net/core/somaxconn") == "4096\n" and host.state() == "confirmed"
    host.apply(sysctl("16"), tuning="z")
    error = host.fail("restore", epoch=1, tuning="t", live=[SOMAXCONN])
    assert error["reason"] == "refused" and "z was applied later" in error["message"]
    host.restore("z")
    assert live(host, SOMAXCONN, rollout="r1")["changed"]


def test_what_changed_only_its_stored_value_has_nothing_live(host: AgentRoot) -> None:
    host.write("proc/sys/net/core/somaxconn", "4096\n")
    host.apply(sysctl("4096"), nginx("LimitNOFILE", "65536"))
    applied = host.tree()
    result = live(host, SOMAXCONN, "service.property:nginx.LimitNOFILE")
    assert not result["changed"] and not result["nothing_to_restore"]
    assert host.state() == "restoring"
    added = {name for name, was in host.tree().items() if applied.get(name) != was}
    assert added <= {"etc/init.d", "etc/init.d/S99edgetune"}, "the boot hook takes the rest back"


def test_a_service_that_took_the_value_at_its_start_is_restarted_in_the_end(
    host: AgentRoot,
) -> None:
    """Also where no file differs any more by then."""
    host.write("etc/sysctl.d/99-site.conf", "net.core.somaxconn = 4096\n")
    host.apply(sysctl("4096", restart="nginx"))
    live(host, SOMAXCONN)
    live(host, SOMAXCONN)
    rest = host.restore()
    assert not rest["changed"] and rest["restarted"] == ["nginx"]


def test_every_verb_tells_what_stands(host: AgentRoot) -> None:
    request = host.change(*EVERYTHING)
    host.ask("apply", **request)
    live(host, SOMAXCONN)
    verified = host.ask("verify", tuning="t", settings=EVERYTHING)
    assert (verified["verified"], verified["state"]) == (False, "restoring")
    kept = host.confirm(*EVERYTHING)
    assert (kept["confirmed"], kept["state"]) == (False, "restoring")
    error = host.fail("apply", **host.change(sysctl("10", "vm.swappiness"), tuning="new"))
    assert error["reason"] == "refused"
    assert error["message"] == "the tuning t on this host is restoring: restore it first"
    assert host.ask("apply", **request)["state"] == "confirmed", "first it is taken back wholly"


def test_it_is_not_confirmed_even_if_all_settings_are_as_wanted(host: AgentRoot) -> None:
    host.apply(sysctl("4096"))
    live(host, SOMAXCONN)
    host.write("proc/sys/net/core/somaxconn", "4096\n")
    kept = host.confirm(sysctl("4096"))
    assert (kept["verified"], kept["confirmed"], kept["state"]) == (True, False, "restoring")


@pytest.mark.parametrize("settings", [EVERYTHING, [sysctl("4096")]])
def test_a_boot_finishes(host: AgentRoot, settings: list[dict[str, Any]]) -> None:
    before = host.tree()
    host.apply(*settings)
    live(host, SOMAXCONN)
    assert host.boot().stderr == ""
    assert without_boot_id(host.tree()) == without_boot_id(before)
    assert host.state() == "none" and host.leftovers() == {"epoch"}


@pytest.mark.parametrize("confirmed", [True, False])
def test_the_timer_finishes_what_is_provisional_alone(tmp_path: Path, confirmed: bool) -> None:
    with agent_root(tmp_path / "host") as host:
        before = host.tree()
        host.apply(*EVERYTHING, confirm_within=300)
        if confirmed:
            assert host.confirm(*EVERYTHING)["confirmed"]
        assert live(host, SOMAXCONN)["changed"]
        between, restarted = host.tree(), restarts(host)
        assert between != before
        if not confirmed:
            host.let_deadline_pass()
        wanted = between if confirmed else before
        assert until(lambda: host.tree() == wanted and not host.processes())
        assert host.state() == ("restoring" if confirmed else "none")
        assert not confirmed or restarts(host) == restarted
