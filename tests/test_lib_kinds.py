# SPDX-License-Identifier: Apache-2.0
"""The catalogue knows of each kind what the agent takes: its values, parts, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgetune.errors import InputError
from edgetune.hosts.agent.kinds import KINDS as AGENT_KINDS
from edgetune.hosts.agent.kinds import file, protected
from edgetune.hosts.agent.kinds.nic_coalesce import NicCoalesce
from edgetune.hosts.agent.kinds.nic_irq_affinity import NicIrqAffinity
from edgetune.hosts.agent.kinds.nic_rps import NicRps
from edgetune.hosts.agent.kinds.nic_xps import NicXps
from edgetune.hosts.agent.kinds.rss_text import FLOWS
from edgetune.hosts.agent.protocol import BadRequest, Fields
from edgetune.hosts.agent.settings import read_settings
from edgetune.kinds import KINDS
from edgetune.off_limits import PLACES, PROTECTED
from edgetune.tuning import load_tuning
from tests.builders import write_yaml

TARGETS = {
    "attribute": "ProcCStates",
    "unit": "irqbalance.service",
    "key": "net.core.somaxconn",
    "interface": "eth0",
    "family": "inet",
    "route": "default",
    "file": "enabled",
    "parameter": "min_free_kbytes",
    "mount": "/var/cache/nginx",
    "path": "/etc/app.conf",
    "service": "nginx",
    "property": "LimitNOFILE",
}

TAKEN: dict[str, list[Any]] = {
    "unit": [{"active": "off"}, {"enabled": "on", "active": "on"}],
    "sysctl": ["4096", "bbr", "4096 87380 6291456"],
    "nic.channels": [{"rx": 0, "tx": 2}, {"combined": 8}],
    "nic.ring": [{"rx": 4096}, {"tx": 1}],
    "nic.rss": [
        {"equal": 4},
        {"weight": "6 2", "hfunc": "xor"},
        {"key": "6d:5A", "hfunc": "toeplitz"},
        {"hfunc": "crc32"},
        *({flow: "sdfn"} for flow in FLOWS),
    ],
    "nic.features": [{"ntuple": "on"}, {"large-receive-offload": "off"}],
    "nic.coalesce": [
        *({name: "off"} for name in NicCoalesce.switches),
        *({name: 50} for name in NicCoalesce.numbers),
    ],
    "nic.irq_affinity": [*NicIrqAffinity.words, "0-3,8", "0 2"],
    "nic.xps": [*NicXps.words, "0-3,8", ""],
    "nic.rps": [*NicRps.words, "0-3,8", ""],
    "nic.rfs": ["0", "32768"],
    "route.metric": [{"initcwnd": 20, "initrwnd": 1}, {"quickack": 0, "congctl": "bbr"}],
    "memory.thp": ["madvise", "defer+madvise", "within_size"],
    "memory.watermarks": ["1024"],
    "memory.tmpfs_policy": ["interleave", "interleave:0-1", "bind:0", "prefer:1", "local"],
    "sched.migration_cost": ["500000"],
    "file": ["a\n", "\n", "größer\n\n"],
    "service.property": ["65536", "infinity", "0-3"],
    "memory.numa_policy": ["interleave", "local", "default", "preferred:1", "bind:0-1,3"],
    "cpu.service_affinity": ["off_nic_irqs", "off_nic_cores"],
}

REFUSED: dict[str, list[Any]] = {
    "unit": [{}, {"active": "masked"}, {"running": "on"}, {"active": 1}],
    "sysctl": ["", "1\n2"],
    "nic.channels": [{}, {"combine": 8}, {"rx": "on"}, {"rx": -1}],
    "nic.ring": [{}, {"combined": 4}, {"rx": 0}],
    "nic.rss": [{}, {"equals": 4}, {"equal": 0}, {"weight": "6"}, {"hfunc": "md5"}, {"tcp4": "x"}],
    "nic.features": [{}, {"ntuple": 1}, {"N tuple": "on"}],
    "nic.coalesce": [{}, {"adaptive-rx": 1}, {"rx-usecs": "on"}, {"rx-usec": 1}],
    "nic.irq_affinity": ["wrong", "", "0-x"],
    "nic.xps": ["others", "0;1"],
    "nic.rps": ["per_queue", "0;1"],
    "nic.rfs": ["many", "-1"],
    "route.metric": [{}, {"initcwnd": 0}, {"quickack": 2}, {"congctl": "BBR"}, {"mtu": 1500}],
    "memory.thp": ["Always", ""],
    "memory.watermarks": ["1 %"],
    "memory.tmpfs_policy": ["default", "bind", "bind:0,1"],
    "sched.migration_cost": ["5 ms"],
    "file": ["a", ""],
    "service.property": ["", "1\n2"],
    "memory.numa_policy": ["preferred", "bind:", "spread"],
    "cpu.service_affinity": ["0-3", ""],
}


def catalogue_says(tmp_path: Path, name: str, value: Any, **more: Any) -> str:
    """What is wrong with a setting in a file of the catalogue."""
    own = {"kind": name, **target_of(name), "value": value, "why": "w", "source": "s", **more}
    document = {
        "name": "app",
        "version": "1.0.0",
        "summary": "s",
        "intent": {"improve": "cpu"},
        "guards": [],
        "settings": [own],
    }
    try:
        load_tuning(write_yaml(tmp_path / "app.yaml", document))
    except InputError as error:
        assert "app.yaml: settings[0]." in str(error)
        return str(error).partition("settings[0].")[2]
    return ""


def agent_says(name: str, value: Any, target: dict[str, str], only: str | None = None) -> str:
    """What is wrong with the same setting in a request."""
    own = {"kind": name, "target": target, "value": value, "only": only}
    own["id"] = ":".join([name, *filter(None, [".".join(target.values())])])
    try:
        read_settings(Fields({"settings": [own]}))
    except BadRequest as error:
        return f"{error.field}: {error}".partition("settings[0].")[2]
    return ""


def target_of(name: str) -> dict[str, str]:
    return {field: TARGETS[field] for field in KINDS[name].target}


def each(values: dict[str, list[Any]]) -> list[tuple[str, Any]]:
    assert set(values) == set(AGENT_KINDS)
    return [(name, value) for name in values for value in values[name]]


@pytest.mark.parametrize(("name", "value"), each(TAKEN))
def test_what_the_agent_takes_is_taken(tmp_path: Path, name: str, value: Any) -> None:
    assert not agent_says(name, value, target_of(name))
    assert not catalogue_says(tmp_path, name, value)


@pytest.mark.parametrize(("name", "value"), each(REFUSED))
def test_what_the_agent_refuses_is_refused(tmp_path: Path, name: str, value: Any) -> None:
    assert agent_says(name, value, target_of(name)).startswith("value")
    assert catalogue_says(tmp_path, name, value).startswith("value")


@pytest.mark.parametrize("name", list(AGENT_KINDS))
def test_only_has_a_meaning_for_the_same_kinds(tmp_path: Path, name: str) -> None:
    value = TAKEN[name][0]
    says = f"only: has no meaning for {name}"
    assert (agent_says(name, value, target_of(name), "raise") == says) is not KINDS[name].ordered
    assert (catalogue_says(tmp_path, name, value, only="raise") == says) is not KINDS[name].ordered


def test_a_kind_is_set_by_the_agent_or_by_the_bmc() -> None:
    assert {name for name in KINDS if KINDS[name].by_bmc} == set(KINDS) - set(AGENT_KINDS)


@pytest.mark.parametrize(
    ("name", "value", "more", "says"),
    [
        ("bios.snoop_mode", "home", {}, ""),
        ("bios.snoop_mode", "Home Snoop", {}, "value: 'Home Snoop' does not match"),
        ("bios.snoop_mode", "home", {"disruption": "drain"}, "disruption: drain is less than"),
        ("bios.attribute", "Disabled", {"attribute": "ProcCStates"}, ""),
        ("bios.attribute", "Disabled", {"attribute": "Proc C"}, "attribute: 'Proc C' does not"),
        ("bios.attribute", "1", {"attribute": "X", "only": "raise"}, "only: has no meaning"),
    ],
)
def test_what_the_bmc_sets(
    tmp_path: Path, name: str, value: str, more: dict[str, str], says: str
) -> None:
    found = catalogue_says(tmp_path, name, value, **more)
    assert found.startswith(says) if says else not found


def test_only_needs_numbers(tmp_path: Path) -> None:
    says = "only: needs a value made of numbers"
    for name, value in (("sysctl", "bbr"), ("route.metric", {"congctl": "bbr"})):
        assert agent_says(name, value, target_of(name), "raise") == says
        assert catalogue_says(tmp_path, name, value, only="raise") == says
    assert not catalogue_says(tmp_path, "service.property", "infinity", only="raise")


def test_expressions_are_for_the_hosts_to_check(tmp_path: Path) -> None:
    assert not catalogue_says(tmp_path, "nic.irq_affinity", "{{ cpus.online }}")
    assert not catalogue_says(tmp_path, "nic.rfs", "{{ cpus.count }}", only="raise")
    assert not catalogue_says(tmp_path, "nic.ring", {"rx": "{{ nic.ring_max.rx }}"}, only="raise")


@pytest.mark.parametrize(
    ("name", "field", "place", "says"),
    [
        ("unit", "unit", "sshd@1.service", "unit: sshd@1.service is needed to reach the host"),
        ("file", "path", "/proc/x", "path: no tuning writes below /proc"),
        ("file", "path", "/etc/sudoers.d/x", "path: no tuning writes below /etc/sudoers.d"),
        ("file", "path", "/etc/sysctl.d/90-edgetune-a.conf", "path: is edgetune's own"),
    ],
)
def test_what_no_tuning_changes_is_named(
    tmp_path: Path, name: str, field: str, place: str, says: str
) -> None:
    value = TAKEN[name][0]
    assert agent_says(name, value, {field: place}).endswith(says)
    assert catalogue_says(tmp_path, name, value, **{field: place}) == says


def test_both_protect_the_same() -> None:
    assert PROTECTED == protected.PROTECTED
    assert PLACES == file.NOT_OURS


@pytest.mark.parametrize("field", ["why", "source"])
def test_a_reason_says_something(tmp_path: Path, field: str) -> None:
    assert catalogue_says(tmp_path, "nic.rfs", 1, **{field: " "}) == f"{field}: is empty"
