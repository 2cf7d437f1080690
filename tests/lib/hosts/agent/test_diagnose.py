# SPDX-License-Identifier: Apache-2.0
"""What the agent finds wrong with a host: everything, nothing, and where nothing can be read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from edgetune.hosts.agent import findings
from edgetune.hosts.agent.host import Host
from edgetune.vocabulary.kinds import KINDS
from tests.support import sick_host
from tests.support.agent_root import THP, near_root, thp
from tests.support.sick_host import (
    CPUS,
    HEALTHY,
    NIC,
    SICK,
    DiagnosedHost,
    channels,
    indirection,
    make,
    nic_statistics,
    overflows,
    per_cpu,
    process,
    ring,
    softnet,
    thread,
)


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


SICK_FINDINGS: dict[str, tuple[str, str | None, dict[str, float]]] = {
    "ring_overflow": (
        "helps",
        "nic_ring",
        {"dropped_per_s": 200.0, "dropped": 1000, "ring": 512, "ring_max": 4096},
    ),
    "rss_reach": (
        "helps",
        "nic_rss",
        {"unreached": 8, "queues": 16, "reached": 8},
    ),
    "fdir_miss": (
        "helps",
        "flow_director_off",
        {"share": 0.34, "misses_per_s": 34000.0, "share_since_boot": 0.1139},
    ),
    "net_rx_skew": (
        "helps",
        "nic_rss",
        {"softirq_time": 0.8, "share": 0.9, "cpus": 2, "online": 8},
    ),
    "time_squeeze": (
        "helps",
        "rps_rfs",
        {"squeezes_per_s": 360.0, "squeezes": 1819, "cpu": 0},
    ),
    "backlog_drops": ("note", None, {"dropped_per_s": 2.0, "dropped": 10}),
    "interrupt_rate": (
        "helps",
        "nic_coalesce",
        {"interrupts_per_s": 30000.0, "packets_per_interrupt": 3.3367},
    ),
    "irqs_unknown": ("note", None, {"interrupts": 1}),
    "web_on_irq_cpus": (
        "helps",
        "cpu_scheduling",
        {"may_run_there": 2, "last_ran_there": 1, "threads": 2, "other_cpus": 6},
    ),
    "accept_queue": (
        "helps",
        "accept_queue",
        {"dropped_per_s": 12.0, "dropped": 63, "somaxconn": 128},
    ),
    "fragmentation": (
        "helps",
        "memory_watermarks",
        {"waits_per_s": 30.0, "large_share": 0.0013, "free_kb": 4822400, "node": 0},
    ),
    "swapping": (
        "helps",
        "no_swap",
        {"swapped_kb": 6 << 20, "pages_per_s": 80.0, "available_kb": 45 << 20},
    ),
    "shmem_on_one_node": (
        "helps",
        "numa_interleave",
        {"share": 0.9778, "shmem_kb": 45 << 20},
    ),
    "numa_miss": (
        "helps",
        "numa_interleave",
        {"share": 0.3333, "misses_per_s": 50000.0},
    ),
    "initial_cwnd": ("note", "initial_cwnd", {"routes": 1}),
    "irqbalance": ("note", None, {"tunings": 0}),
    "tuned": ("conflict", None, {"running": 1}),
    "bpftune": ("conflict", None, {"running": 1}),
    "sysctl_files": ("conflict", None, {"keys": 1}),
    "sysctl_not_in_force": ("conflict", None, {"keys": 2}),
    "drift": ("conflict", "t", {"settings": 1}),
}


def test_everything_is_found_on_a_sick_host(sick: DiagnosedHost) -> None:
    sick.apply(thp("never"))
    sick.write(f"{THP}/enabled", "[always] madvise never\n")
    result = sick.diagnose()
    found = {
        row["finding"]: (row["severity"], row["tuning"], row["numbers"])
        for row in result["findings"]
    }
    assert found == SICK_FINDINGS
    said = {row["finding"]: row["what"] for row in result["findings"]}
    assert said["drift"] == (
        "settings of t have drifted (1): memory.thp:enabled wants never, has always, "
        "after a boot never"
    )
    assert result["unread"] == []
    assert (result["seconds"], result["tunings"]) == (5.0, {"t": "confirmed"})
    assert set(found) == {finder.__name__ for finder in findings.FINDERS}


def test_the_sentences_hold_the_numbers(sick: DiagnosedHost) -> None:
    said = {name: row["what"] for name, row in sick.found().items()}
    assert said["ring_overflow"] == (
        "eth0 drops 200 packets/s (rx_no_dma_resources; 1000 since the boot, 0.002 %); its "
        "receive rings hold 512 of at most 4096"
    )
    assert said["fdir_miss"] == (
        "Flow Director of eth0 misses 34 % of its lookups, 34,000/s (11 % since the boot): packets "
        "of one flow come over many queues"
    )
    assert said["net_rx_skew"] == (
        "2 of 8 CPUs (0-1) take 90 % of NET_RX, 200,000/s in all; the busiest spends 80 % of its "
        "time in soft interrupts"
    )
    assert said["swapping"] == (
        "6.0 GiB are swapped out (80 pages/s now) with 45.0 GiB available, 18 % of all memory; "
        "vm.swappiness is 60"
    )
    assert "network-throughput" in said["tuned"]
    assert said["sysctl_files"].endswith(
        "net.core.netdev_max_backlog is 5000 in /etc/sysctl.d/99-local.conf, 1000 in "
        "/etc/sysctl.d/10-site.conf"
    )
    assert "net.ipv4.tcp_tw_reuse is 2, 1 in /etc/sysctl.d/99-local" in said["sysctl_not_in_force"]


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
    monkeypatch.setattr("edgetune.hosts.agent.findings.memory.gib", lambda kb: 1 / 0)
    result = sick.diagnose()
    names = {row["finding"] for row in result["findings"]}
    assert set(SICK_FINDINGS) - names == {"fragmentation", "swapping", "shmem_on_one_node", "drift"}
    assert "swapping: ZeroDivisionError: division by zero" in result["unread"]


def test_what_ethtool_refuses_is_named(sick: DiagnosedHost) -> None:
    del sick.says["ethtool -x eth0"]
    result = sick.diagnose()
    assert "rss_reach" not in {row["finding"] for row in result["findings"]}
    assert result["unread"] == ["ethtool -x eth0: netlink error: Operation not supported"]


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


def test_few_drops_long_ago_are_none_of_today(healthy: DiagnosedHost) -> None:
    healthy.write("proc/net/netstat", overflows(900))
    healthy.clock.then = lambda: None
    assert healthy.found() == {}
    healthy.write("proc/net/netstat", overflows(1001))
    assert set(healthy.found()) == {"accept_queue"}


@pytest.mark.parametrize("columns", [11, 13, 15])
def test_softnet_stat_of_several_kernels(healthy: DiagnosedHost, columns: int) -> None:
    rows = [(1000, 0, 0)] * CPUS
    healthy.write("proc/net/softnet_stat", softnet(rows, columns))
    worse = [*rows[:6], (1000, 0, 100), rows[7]]
    healthy.clock.then = lambda: _write(healthy, "proc/net/softnet_stat", softnet(worse, columns))
    numbers = healthy.found()["time_squeeze"]["numbers"]
    assert numbers == {"squeezes_per_s": 20.0, "squeezes": 100, "cpu": 6}


def test_softnet_stat_skips_cpus_that_are_offline(healthy: DiagnosedHost) -> None:
    healthy.write("sys/devices/system/cpu/online", "0-1,4-7\n")
    healthy.write("proc/net/softnet_stat", softnet([(1, 0, 0)] * 6, 11))
    worse = [(1, 0, 0), (1, 0, 0), (1, 0, 500), (1, 0, 0), (1, 0, 0), (1, 0, 0)]
    healthy.clock.then = lambda: _write(healthy, "proc/net/softnet_stat", softnet(worse, 11))
    assert healthy.found()["time_squeeze"]["numbers"]["cpu"] == 4


def _write(host: DiagnosedHost, name: str, text: str) -> None:
    host.write(name, text)


@pytest.mark.parametrize(
    ("driver", "counters", "label"),
    [
        ("ixgbe", {"rx_missed_errors": 50, "rx_no_buffer_count": 999}, "rx_missed_errors"),
        ("igb", {"rx_no_buffer_count": 50}, "rx_no_buffer_count"),
        ("i40e", {"rx_dropped": 0, "port.rx_dropped": 50}, "port.rx_dropped"),
        ("ice", {"rx_dropped.nic": 50}, "rx_dropped.nic"),
        ("mlx5_core", {"rx_out_of_buffer": 50, "rx0_packets": 9}, "rx_out_of_buffer"),
        ("bnxt_en", {"[0]: rx_discards": 20, "[1]: rx_discards": 30}, "2 x [0]: rx_discards"),
        ("bnxt_en", {"rx_total_discard_pkts": 50}, "rx_total_discard_pkts"),
        ("ena", {"rx_drops": 50, "bw_in_allowance_exceeded": 999}, "rx_drops"),
        ("virtio_net", {"rx_queue_0_drops": 20, "rx_queue_1_drops": 30}, "2 x rx_queue_0_drops"),
        ("virtio_net", {"rx0_drops": 50, "rx0_xdp_drops": 999}, "rx0_drops"),
        ("veth", {"rx_queue_0_drops": 50}, "rx_queue_0_drops"),
    ],
)
def test_full_rings_of_each_driver(
    healthy: DiagnosedHost, driver: str, counters: dict[str, int], label: str
) -> None:
    link = healthy.path / NIC / "device/driver"
    link.unlink()
    link.symlink_to(f"../../../../bus/pci/drivers/{driver}")
    healthy.says["ethtool -g eth0"] = ring(256, 1024)
    before = nic_statistics(dict.fromkeys(counters, 0))
    healthy.says["ethtool -S eth0"] = before
    assert healthy.found() == {}
    healthy.says["ethtool -S eth0"] = before
    healthy.clock.then = lambda: healthy.says.update({"ethtool -S eth0": nic_statistics(counters)})
    row = healthy.found()["ring_overflow"]
    assert (row["numbers"]["dropped_per_s"], row["tuning"]) == (10.0, "nic_ring")
    assert f"({label};" in row["what"]


def test_a_card_that_is_down_is_left_alone(sick: DiagnosedHost) -> None:
    sick.write(f"{NIC}/operstate", "down\n")
    assert not {"ring_overflow", "rss_reach", "fdir_miss"} & set(sick.found())
    sick.write(f"{NIC}/operstate", "unknown\n")
    assert {"ring_overflow", "rss_reach", "fdir_miss"} <= set(sick.found())


def test_the_kernel_may_count_what_the_driver_does_not(sick: DiagnosedHost) -> None:
    grow = sick.clock.then

    def then() -> None:
        grow()
        sick.says["ethtool -S eth0"] = nic_statistics({"rx_missed_errors": 0})

    sick.clock.then = then
    assert sick.found()["ring_overflow"]["numbers"]["dropped_per_s"] == 80.0


def test_what_only_the_second_look_shows_has_no_rate(healthy: DiagnosedHost) -> None:
    label = {"43": "PCI-MSIX-0000:03:00.0   4-edge      eth0-TxRx-3"}
    later = per_cpu({"43": [10**6] * CPUS}, label)
    healthy.clock.then = lambda: _write(healthy, "proc/interrupts", later)
    assert healthy.found() == {}


def test_a_ring_that_cannot_grow_is_only_noted(sick: DiagnosedHost) -> None:
    sick.says["ethtool -g eth0"] = ring(4096, 4096)
    row = sick.found()["ring_overflow"]
    assert (row["severity"], row["tuning"]) == ("note", None)


@pytest.mark.parametrize(
    ("combined", "size", "queues", "unreached"),
    [(32, 128, 16, 16), (63, 512, 63, None), (8, 128, 8, None), (16, 128, 15, 1)],
)
def test_queues_and_tables(
    healthy: DiagnosedHost, combined: int, size: int, queues: int, unreached: int | None
) -> None:
    healthy.says["ethtool -l eth0"] = channels(combined, 63)
    table = indirection(size, queues)
    healthy.says["ethtool -x eth0"] = table
    found = healthy.found()
    assert found.get("rss_reach", {"numbers": {"unreached": None}})["numbers"]["unreached"] == (
        unreached
    )


def test_flow_director_that_filters_is_not_blamed(sick: DiagnosedHost) -> None:
    sick.says["ethtool -k eth0"] = "Features for eth0:\nntuple-filters: on\n"
    assert "fdir_miss" not in sick.found()


def test_skew_on_cpus_that_have_time_is_only_noted(sick: DiagnosedHost) -> None:
    grow = sick.clock.then

    def then() -> None:
        grow()
        sick.write("proc/stat", sick_host.stat([1_000] * CPUS, [9_500] * CPUS))

    sick.clock.then = then
    row = sick.found()["net_rx_skew"]
    assert (row["severity"], row["numbers"]["softirq_time"]) == ("note", 0.0)


def test_skew_where_rss_reaches_every_queue_is_for_rps(sick: DiagnosedHost) -> None:
    sick.says["ethtool -l eth0"] = channels(8, 63)
    assert sick.found()["net_rx_skew"]["tuning"] == "rps_rfs"


def test_interrupts_that_may_go_anywhere_are_said_to(healthy: DiagnosedHost) -> None:
    for irq in (40, 41):
        healthy.write(f"proc/irq/{irq}/smp_affinity_list", "0-7\n")
    row = healthy.found()["irqs_anywhere"]
    assert (row["severity"], row["numbers"]) == ("note", {"interrupts": 2})
    assert "web_on_irq_cpus" not in healthy.found()


def test_a_card_that_is_served_by_most_cpus_leaves_too_few(sick: DiagnosedHost) -> None:
    sick.write("proc/irq/41/effective_affinity_list", "1-4\n")
    row = sick.found()["web_on_irq_cpus"]
    assert (row["severity"], row["numbers"]["other_cpus"]) == ("note", 3)


def test_threads_of_a_service_without_a_control_group(sick: DiagnosedHost) -> None:
    del sick.says["systemctl show -p ControlGroup nginx"]
    sick.says["systemctl show -p MainPID nginx"] = "MainPID=501\n"
    process(sick, 501, "nginx: master")
    process(sick, 502, "nginx (x) y", 501)
    thread(sick, 502, 503, "4-7", 5)
    process(sick, 504, "child", 502)
    numbers = sick.found()["web_on_irq_cpus"]["numbers"]
    assert (numbers["threads"], numbers["may_run_there"]) == (4, 3)


def test_the_services_are_those_of_the_request(sick: DiagnosedHost) -> None:
    assert "web_on_irq_cpus" not in sick.found(services=["haproxy"])
    error = sick.fail("diagnose", services=["nginx", "a b"])
    assert (error["reason"], error["field"]) == ("bad_request", "services[1]")


def test_an_accept_queue_that_is_long_already_is_only_noted(sick: DiagnosedHost) -> None:
    sick.write("proc/sys/net/core/somaxconn", "4096\n")
    row = sick.found()["accept_queue"]
    assert (row["severity"], row["tuning"]) == ("note", None)


def test_swap_that_is_off_in_all_but_name_is_only_noted(sick: DiagnosedHost) -> None:
    sick.write("proc/sys/vm/swappiness", "1\n")
    assert sick.found()["swapping"]["severity"] == "note"


def test_stalls_as_kernels_before_4_12_count_them(sick: DiagnosedHost) -> None:
    sick.write("proc/vmstat", "compact_stall 0\nallocstall 0\n")
    after = "compact_stall 0\nallocstall 10\n"
    sick.clock.then = lambda: _write(sick, "proc/vmstat", after)
    assert sick.found()["fragmentation"]["numbers"]["waits_per_s"] == 2.0


def test_crumbs_that_nobody_waits_for_are_only_noted(sick: DiagnosedHost) -> None:
    sick.clock.then = lambda: None
    assert sick.found()["fragmentation"]["severity"] == "note"
    sick.write("proc/buddyinfo", f"Node 0, zone   Normal {'1000 ' * 4} 20 {'0 ' * 6}\n")
    assert "fragmentation" not in sick.found()


def test_a_host_with_a_single_node_has_nothing_to_spread(sick: DiagnosedHost) -> None:
    shutil.rmtree(sick.path / "sys/devices/system/node/node1")
    sick.clock.then = lambda: None
    assert not {"shmem_on_one_node", "numa_miss"} & set(sick.found())


def test_pages_that_stay_swapped_out_are_only_noted(sick: DiagnosedHost) -> None:
    sick.clock.then = lambda: None
    assert sick.found()["swapping"]["severity"] == "note"
    sick.write("proc/vmstat", sick_host.vmstat(0, 100_001))
    assert sick.found()["swapping"]["severity"] == "helps"


def test_swapping_for_want_of_memory_is_right(sick: DiagnosedHost) -> None:
    text = sick.read("proc/meminfo").replace(f"MemAvailable: {45 << 20}", "MemAvailable: 1000")
    sick.write("proc/meminfo", text)
    assert "swapping" not in sick.found()


def test_irqbalance_beside_placed_interrupts_is_a_conflict(sick: DiagnosedHost) -> None:
    sick.apply(thp("never"))
    journal = sick.path / "var/lib/edgetune/tunings/t.json"
    known = json.loads(journal.read_text())
    known["entries"][0].update(kind="nic.irq_affinity", target={"interface": "eth0"})
    journal.write_text(json.dumps(known))
    if "nic.irq_affinity" not in KINDS:
        pytest.skip("this agent places no interrupts yet")
    row = sick.found()["irqbalance"]
    assert (row["severity"], row["numbers"]) == ("conflict", {"tunings": 1})
    assert "that t has placed" in row["what"]


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ("90-edgetune-0001-t.conf", "10-site.conf", False),
        ("90-edgetune-0001-t.conf", "99-late.conf", True),
        ("90-edgetune-b.conf", "90-edgetune-a.conf", False),
    ],
)
def test_our_own_file_may_override_others(
    healthy: DiagnosedHost, ours: str, theirs: str, expected: bool
) -> None:
    healthy.write(f"etc/sysctl.d/{ours}", "net.ipv4.tcp_tw_reuse = 2\n")
    healthy.write(f"etc/sysctl.d/{theirs}", "net.ipv4.tcp_tw_reuse = 1\n")
    assert ("sysctl_files" in healthy.found()) == expected


def test_our_own_value_that_is_not_in_force_is_drift_and_no_more(healthy: DiagnosedHost) -> None:
    healthy.write("etc/sysctl.d/90-edgetune-0001-t.conf", "net.ipv4.tcp_tw_reuse = 1\n")
    assert healthy.found() == {}


def test_a_file_of_the_distribution_may_be_overridden(healthy: DiagnosedHost) -> None:
    healthy.write("etc/sysctl.d/50-own.conf", "net.core.somaxconn = 512\n")
    healthy.write("proc/sys/net/core/somaxconn", "512\n")
    assert healthy.found() == {}


@pytest.mark.parametrize("answer", ["", "[]", "{", '{"a": 1}', "[1]"])
def test_routes_that_cannot_be_told(healthy: DiagnosedHost, answer: str) -> None:
    healthy.says["ip -j route show default"] = answer
    assert healthy.found() == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "file", ["softirqs", "interrupts", "buddyinfo", "vmstat", "stat", "meminfo", "net/netstat"]
)
@pytest.mark.parametrize("text", ["", "rubbish: 1 2\n\n:", "CPU0 CPU1\n: :\nNET_RX: 1\n", "\0"])
def test_rubbish_is_no_finding(healthy: DiagnosedHost, file: str, text: str) -> None:
    healthy.clock.then = lambda: None
    healthy.write(f"proc/{file}", text)
    assert healthy.found() == {}


@pytest.mark.parametrize("seconds", [-1, 61, "5", 1.5])
def test_a_wrong_time_is_named(host: DiagnosedHost, seconds: Any) -> None:
    assert host.fail("diagnose", seconds=seconds)["field"] == "seconds"


@pytest.mark.processes
def test_really_waits(tmp_path: Path) -> None:
    with near_root(tmp_path / "host") as host:
        assert host.ask("diagnose", seconds=1)["seconds"] >= 1
