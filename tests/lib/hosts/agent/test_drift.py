# SPDX-License-Identifier: Apache-2.0
"""What a host says of standing tuned settings that somebody else has changed since."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgetune.hosts.agent.host import Host
from tests.lib.hosts.agent.test_nic import NicHost, channels
from tests.support.agent_nic import Card, mlx5
from tests.support.agent_root import THP, AgentRoot, near_root, nginx, setting, sysctl, thp

ENABLED = f"{THP}/enabled"
SOMAXCONN = "proc/sys/net/core/somaxconn"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[AgentRoot]:
    with near_root(tmp_path / "host") as root:
        yield root


def drift(host: AgentRoot) -> list[dict[str, Any]]:
    """What a sample tells, its gauge checked."""
    sample = host.ask("sample")
    assert sample["gauges"]["drifted"] == len(sample["drift"])
    found: list[dict[str, Any]] = sample["drift"]
    return found


def ids(host: AgentRoot) -> list[tuple[str, str]]:
    return [(row["tuning"], row["id"]) for row in drift(host)]


@pytest.mark.processes
def test_nothing_drifts_where_nothing_was_changed_since(host: AgentRoot) -> None:
    host.apply(sysctl("4096"), thp("never"), nginx("LimitNOFILE", "65536"))
    assert drift(host) == []


def test_each_way_to_drift_is_told(host: AgentRoot) -> None:
    def told(*names: str) -> list[Any]:
        (row,) = drift(host)
        assert row["tuning"] == "t"
        return [row[name] for name in names]

    host.apply(sysctl("4096"), thp("never"))
    host.write(SOMAXCONN, "128\n")
    names = ("id", "wanted", "runtime", "persistent", "reason")
    key = "sysctl:net.core.somaxconn"
    assert told(*names) == [key, "4096", "128", "4096", "differs now"]
    host.write(SOMAXCONN, "4096\n")
    later = host.write("etc/sysctl.d/99-local.conf", "net.core.somaxconn = 512\n")
    persistent, reason = told("persistent", "reason")
    assert persistent == "512" and "99-local.conf is read after ours and sets it to 512" in reason
    later.unlink()
    ours = host.path / "etc/sysctl.d/90-edgetune-0001-t.conf"
    text = ours.read_text()
    ours.unlink()
    assert told(*names[2:]) == ["4096", "128", "would be lost at the next boot"]
    ours.write_text(text)
    host.write(ENABLED, "one\ntwo\n")
    (runtime,) = told("runtime")
    assert runtime.startswith("sha256:") and ", 7 bytes, 2 lines" in runtime
    (host.path / ENABLED).unlink()
    runtime, persistent, reason = told(*names[2:])
    assert (runtime, persistent) == (None, "never") and "No such file" in reason


def test_more_than_was_asked_for_is_no_drift(host: AgentRoot) -> None:
    host.apply(sysctl("4096", only="raise"))
    host.write(SOMAXCONN, "8192\n")
    assert drift(host) == []
    host.write(SOMAXCONN, "4095\n")
    assert ids(host) == [("t", "sysctl:net.core.somaxconn")]


def test_what_a_later_tuning_sets_is_its_own(host: AgentRoot) -> None:
    host.apply(sysctl("4096"), thp("never"), tuning="a")
    host.apply(sysctl("8192"), tuning="b")
    assert drift(host) == []
    host.write(SOMAXCONN, "128\n")
    assert ids(host) == [("b", "sysctl:net.core.somaxconn")]
    host.write(ENABLED, "[always] madvise never\n")
    assert ids(host) == [("a", "memory.thp:enabled"), ("b", "sysctl:net.core.somaxconn")]


def test_flows_of_one_interface_are_not_those_of_another(host: AgentRoot) -> None:
    for number in range(4):
        host.write(f"sys/class/net/eth1/queues/rx-{number}/rps_flow_cnt", "0\n")
    host.write("proc/sys/net/core/rps_sock_flow_entries", "0\n")
    host.apply(setting("nic.rfs", {"interface": "eth0"}, "1024"))
    host.apply(setting("nic.rfs", {"interface": "eth1"}, "2048"), tuning="u")
    assert ids(host) == []
    host.write("sys/class/net/eth0/queues/rx-0/rps_flow_cnt", "0\n")
    assert ids(host) == [("t", "nic.rfs:eth0")]


def test_of_a_coupled_pair_the_later_one_counts(host: AgentRoot) -> None:
    host.write("proc/sys/vm/dirty_ratio", "20\n")
    host.write("proc/sys/vm/dirty_bytes", "0\n")
    host.apply(sysctl("30", key="vm.dirty_ratio"), tuning="a")
    host.apply(sysctl("1000000", key="vm.dirty_bytes"), tuning="b")
    host.write("proc/sys/vm/dirty_ratio", "0\n")
    assert drift(host) == []


def test_a_tuning_on_its_way_does_not_drift(host: AgentRoot) -> None:
    host.apply(sysctl("4096"))
    host.write(SOMAXCONN, "128\n")
    journal = host.path / "var/lib/edgetune/tunings/t.json"
    for state in ("applying", "provisional", "restoring"):
        journal.write_text(json.dumps({**json.loads(journal.read_text()), "state": state}))
        assert drift(host) == [], state


@pytest.fixture
def nic(tmp_path: Path) -> NicHost:
    return NicHost(tmp_path / "host")


@pytest.fixture
def card(nic: NicHost, monkeypatch: pytest.MonkeyPatch) -> Card:
    return mlx5().install(nic, monkeypatch)


def test_a_later_tuning_takes_over_only_its_parts(
    nic: NicHost, card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    nic.apply(coalesce(**{"adaptive-rx": "off", "rx-usecs": 50}), tuning="a")
    nic.apply(coalesce(**{"rx-usecs": 80}), tuning="b")
    nic.apply(channels(combined=4), tuning="c")
    assert drift(nic) == []
    card.coalesce["adaptive-rx"] = "on"
    (row,) = drift(nic)
    assert (row["tuning"], row["wanted"]) == ("a", {"adaptive-rx": "off"})
    assert row["runtime"] == {"adaptive-rx": "on"}
    card.coalesce["rx-usecs"] = 8
    assert ids(nic) == [("a", "nic.coalesce:eth0"), ("b", "nic.coalesce:eth0")]
    # A reading that breaks leaves the sample whole.
    monkeypatch.setattr(Host, "attempt", lambda host, *words: words["x"])
    row = drift(nic)[0]
    assert (row["runtime"], row["persistent"]) == (None, None)
    assert row["reason"].startswith("cannot be read: TypeError: ")


def test_a_later_tuning_makes_the_table_in_other_words(nic: NicHost, card: Card) -> None:
    nic.apply(rss(equal=2, hfunc="toeplitz"), tuning="a")
    nic.apply(rss(weight="3 1"), tuning="b")
    assert drift(nic) == []
    nic.ask("restore", epoch=1, tuning="b")
    assert drift(nic) == []


def rss(**value: Any) -> dict[str, Any]:
    return setting("nic.rss", {"interface": "eth0"}, value)


def coalesce(**value: Any) -> dict[str, Any]:
    return setting("nic.coalesce", {"interface": "eth0"}, value)
