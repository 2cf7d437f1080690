# SPDX-License-Identifier: Apache-2.0
"""What the agent finds wrong with a host: everything, nothing, and where nothing can be read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable

import pytest

from edgetune.agent.findings import linux
from edgetune.agent.host import Host
from tests.support import sick_host
from tests.support.agent_root import THP, near_root, thp
from tests.support.cases import cases, table
from tests.support.sick_host import CPUS, HEALTHY, NIC, SICK, DiagnosedHost, make, process, thread

HERE = Path(__file__).parent
SICK_FINDINGS = table(HERE / "sick_findings.yaml")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DiagnosedHost:
    return DiagnosedHost(tmp_path / "host", monkeypatch)


@pytest.fixture
def sick(host: DiagnosedHost) -> DiagnosedHost:
    make(host, SICK, 1)
    return host


@pytest.fixture
def healthy(host: DiagnosedHost) -> DiagnosedHost:
    make(host, HEALTHY, 0)
    return host


def test_everything_is_found_on_a_sick_host(sick: DiagnosedHost) -> None:
    sick.apply(thp("never"))
    sick.write(f"{THP}/enabled", "[always] madvise never\n")
    result = sick.diagnose()
    found = {row["finding"]: row for row in result["findings"]}
    assert {
        name: [row["severity"], row["tuning"], row["numbers"]] for name, row in found.items()
    } == {name: row[:3] for name, row in SICK_FINDINGS.items()}
    for name, row in SICK_FINDINGS.items():
        assert row[3] in found[name]["what"], name
    assert result["unread"] == []
    assert (result["seconds"], result["tunings"]) == (5.0, {"t": "confirmed"})
    # Its rings are full.
    assert {*found, "early_snoop"} == {finder.__name__ for finder in linux.FINDERS}


def test_nothing_is_found_on_a_healthy_host(healthy: DiagnosedHost) -> None:
    healthy.apply(thp("never"))
    result = healthy.diagnose()
    assert (result["findings"], result["unread"]) == ([], [])


def test_where_nothing_can_be_read_nothing_is_wrong(tmp_path: Path) -> None:
    with near_root(tmp_path / "host") as host:
        for top in ("proc", "sys", "etc", "usr"):
            shutil.rmtree(host.path / top)
        result = host.ask("diagnose", seconds=0)
    assert result["findings"] == []
    assert "/proc/net/softnet_stat: No such file or directory" in result["unread"]
    assert "ip: there is no such program" in result["unread"]


def test_a_reading_that_breaks_costs_that_finding_alone(
    sick: DiagnosedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgetune.agent.findings.memory.gib", lambda kb: 1 / 0)
    del sick.says["ethtool -x eth0"]
    result = sick.diagnose()
    lost = set(SICK_FINDINGS) - {row["finding"] for row in result["findings"]}
    assert lost == {"fragmentation", "swapping", "shmem_on_one_node", "rss_reach", "drift"}
    assert "swapping: ZeroDivisionError: division by zero" in result["unread"]
    # A card without such a table has nothing that could not be read.
    assert not any("ethtool -x" in each for each in result["unread"])


def test_without_ethtool_it_is_named_once(
    sick: DiagnosedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Host.program
    without = {"ethtool": None}
    monkeypatch.setattr(
        Host, "program", lambda host, name: without.get(name, name) and program(host, name)
    )
    result = sick.diagnose()
    assert result["unread"] == ["ethtool: there is no such program"]
    (lost,) = (row for row in result["findings"] if row["finding"] == "ring_overflow")
    assert (lost["tuning"], lost["numbers"]["dropped_per_s"]) == (None, 80.0)


def test_at_once_rates_are_those_since_the_boot(sick: DiagnosedHost) -> None:
    sick.clock.then()
    found = sick.found(0)
    assert found["ring_overflow"]["numbers"]["dropped_per_s"] == 0.01
    assert not {"accept_queue", "time_squeeze", "interrupt_rate"} & set(found)


def squeezed(columns: int, *times: int) -> str:
    return sick_host.softnet([(1000, 0, each) for each in times], columns)


PROGRAMS: dict[str, tuple[str, Callable[..., str]]] = {
    "ring": ("ethtool -g eth0", sick_host.ring),
    "channels": ("ethtool -l eth0", sick_host.channels),
    "table": ("ethtool -x eth0", sick_host.indirection),
    "statistics": ("ethtool -S eth0", sick_host.nic_statistics),
}
FILES: dict[str, tuple[str, Callable[..., str]]] = {
    "overflows": ("proc/net/netstat", sick_host.overflows),
    "squeezed": ("proc/net/softnet_stat", squeezed),
    "vmstat": ("proc/vmstat", sick_host.vmstat),
    "idle": ("proc/stat", lambda idle: sick_host.stat([1_000] * CPUS, [idle] * CPUS)),
}


def tell(host: DiagnosedHost, told: Mapping[str, Any]) -> None:
    host.write_all(told.get("files", {}))
    host.says.update(told.get("programs", {}))
    for name, numbers in told.get("tell", {}).items():
        if name in PROGRAMS:
            command, made = PROGRAMS[name]
            host.says[command] = made(*numbers)
        else:
            file, made = FILES[name]
            host.write(file, made(*numbers))


@pytest.mark.parametrize("case", cases(HERE / "diagnose.yaml"))
def test_what_is_told_decides_what_is_found(host: DiagnosedHost, case: dict[str, Any]) -> None:
    make(host, *((SICK, 1) if case["host"] == "sick" else (HEALTHY, 0)))
    tell(host, case)
    grow, later = host.clock.then, case.get("later", {"grows": True})

    def then() -> None:
        if later.get("grows"):
            grow()
        tell(host, later)

    host.clock.then = then
    found = host.found()
    if "nothing" in case:
        assert found == {}
    for name, wanted in case.get("finds", {}).items():
        if wanted is None:
            assert name not in found
            continue
        numbers = wanted.get("numbers", {})
        assert {key: found[name]["numbers"][key] for key in numbers} == numbers
        assert {key: found[name][key] for key in wanted if key != "numbers"} == {
            key: value for key, value in wanted.items() if key != "numbers"
        }


@pytest.mark.parametrize("case", cases(HERE / "full_rings.yaml"))
def test_full_rings_of_each_driver(healthy: DiagnosedHost, case: dict[str, Any]) -> None:
    link = healthy.path / NIC / "device/driver"
    link.unlink()
    link.symlink_to(f"../../../../bus/pci/drivers/{case['driver']}")
    before = {"tell": {"ring": [256, 1024], "statistics": [dict.fromkeys(case["counts"], 0)]}}
    tell(healthy, before)
    assert healthy.found() == {}
    tell(healthy, before)
    healthy.clock.then = lambda: tell(healthy, {"tell": {"statistics": [case["counts"]]}})
    row = healthy.found()["ring_overflow"]
    assert (row["numbers"]["dropped_per_s"], row["tuning"]) == (10.0, "nic_ring")
    assert f"({case['label']};" in row["what"]


def test_what_only_the_second_look_shows_has_no_rate(healthy: DiagnosedHost) -> None:
    label = {"43": "PCI-MSIX-0000:03:00.0   4-edge      eth0-TxRx-3"}
    later = sick_host.per_cpu({"43": [10**6] * CPUS}, label)
    healthy.clock.then = lambda: healthy.write_all({"proc/interrupts": later})
    assert healthy.found() == {}


def test_threads_are_those_of_the_services_that_were_asked_for(sick: DiagnosedHost) -> None:
    assert "web_on_irq_cpus" not in sick.found(services=["haproxy"])
    error = sick.fail("diagnose", services=["nginx", "a b"])
    assert (error["reason"], error["field"]) == ("bad_request", "services[1]")
    # Without a control group.
    sick.says[sick_host.GROUP_SHOWN] = "MainPID=501\n"
    process(sick, 501, "nginx: master")
    process(sick, 502, "nginx (x) y", 501)
    thread(sick, 502, 503, "4-7", 5)
    process(sick, 504, "child", 502)
    numbers = sick.found()["web_on_irq_cpus"]["numbers"]
    assert (numbers["threads"], numbers["may_run_there"]) == (4, 3)


def test_a_host_with_a_single_node_has_nothing_to_spread(sick: DiagnosedHost) -> None:
    shutil.rmtree(sick.path / "sys/devices/system/node/node1")
    sick.clock.then = lambda: None
    assert not {"shmem_on_one_node", "numa_miss"} & set(sick.found())


def test_irqbalance_beside_placed_interrupts_is_a_conflict(sick: DiagnosedHost) -> None:
    sick.apply(thp("never"))
    journal = sick.path / "var/lib/edgetune/tunings/t.json"
    known = json.loads(journal.read_text())
    known["entries"][0].update(kind="nic.irq_affinity", target={"interface": "eth0"})
    journal.write_text(json.dumps(known))
    row = sick.found()["irqbalance"]
    assert (row["severity"], row["numbers"]) == ("conflict", {"tunings": 1})
    assert "that t has placed" in row["what"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "file", ["softirqs", "interrupts", "buddyinfo", "vmstat", "stat", "meminfo", "net/netstat"]
)
def test_rubbish_is_no_finding(healthy: DiagnosedHost, file: str) -> None:
    healthy.clock.then = lambda: None
    for text in ("", "rubbish: 1 2\n\n:", "CPU0 CPU1\n: :\nNET_RX: 1\n", "\0"):
        healthy.write(f"proc/{file}", text)
        assert healthy.found() == {}, text


def test_a_wrong_time_is_named(host: DiagnosedHost) -> None:
    for seconds in (-1, 61, "5", 1.5):
        assert host.fail("diagnose", seconds=seconds)["field"] == "seconds", seconds


@pytest.mark.processes
def test_really_waits(tmp_path: Path) -> None:
    with near_root(tmp_path / "host") as host:
        assert host.ask("diagnose", seconds=1)["seconds"] >= 1
