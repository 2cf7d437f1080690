# SPDX-License-Identifier: Apache-2.0
"""The kinds of settings: how each is read, bounded, kept, and what a host cannot do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from edgetune.hosts.agent.host import Host
from edgetune.vocabulary.targets import sysctl_path
from edgetune.vocabulary.values import format_cpus, format_mask, parse_cpus, parse_mask
from tests.support.agent_root import (
    NGINX_DROP_INS,
    THP,
    AgentRoot,
    channels,
    near_root,
    nginx,
    rps,
    setting,
    sysctl,
    thp,
)

QUEUES = "sys/class/net/eth0/queues"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[AgentRoot]:
    with near_root(tmp_path / "host") as root:
        yield root


def row_of(host: AgentRoot, own: dict[str, Any]) -> dict[str, Any]:
    return host.plan(own)[0]


STORED = yaml.safe_load(Path(__file__).with_name("stored.yaml").read_text())


@pytest.mark.parametrize("name", STORED["sysctl"])
def test_the_stored_sysctl_is_the_one_that_wins(host: AgentRoot, name: str) -> None:
    case = STORED["sysctl"][name]
    for file, text in case["files"].items():
        host.write(file, text)
    assert row_of(host, sysctl("9"))["persistent"] == case["stored"]


@pytest.mark.processes
@pytest.mark.parametrize("name", STORED["property"])
def test_the_stored_property_is_the_one_that_wins(host: AgentRoot, name: str) -> None:
    case = STORED["property"][name]
    for file, text in case["files"].items():
        host.write(file, text)
    assert row_of(host, nginx("LimitNOFILE", "9"))["persistent"] == case["stored"]


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("net.ipv4.tcp_rmem", "net/ipv4/tcp_rmem"),
        ("net/ipv4/conf/eth0.1/forwarding", "net/ipv4/conf/eth0.1/forwarding"),
        ("net.ipv4.conf.eth0/1.forwarding", "net/ipv4/conf/eth0.1/forwarding"),
    ],
)
def test_both_ways_to_write_a_sysctl(key: str, path: str) -> None:
    assert sysctl_path(key) == path


@pytest.mark.parametrize("file", ["etc/sysctl.d/99-late.conf", "etc/sysctl.conf"])
def test_a_file_that_is_read_after_ours_is_seen_before_anything_is_done(
    host: AgentRoot, file: str
) -> None:
    host.write(file, "net.core.somaxconn = 256\n")
    assert host.reason(sysctl("4096")) == f"/{file} is read after ours and sets it to 256"


def test_systemd_reads_sysctl_conf_only_as_one_of_its_own(tmp_path: Path) -> None:
    with near_root(tmp_path / "host", init="systemd") as host:
        host.write("etc/sysctl.conf", "net.core.somaxconn = 256\n")
        row = row_of(host, sysctl("4096"))
        assert (row["status"], row["persistent"]) == ("change", "128")
        (host.path / "etc/sysctl.d").mkdir()
        (host.path / "etc/sysctl.d/99-sysctl.conf").symlink_to("../sysctl.conf")
        row = row_of(host, sysctl("4096"))
        assert (row["status"], row["persistent"]) == ("unsupported", "256")
        assert row["reason"].startswith("/etc/sysctl.d/99-sysctl.conf is read after ours")


def test_a_file_that_comes_later_to_shadow_ours_does_not_verify(host: AgentRoot) -> None:
    host.apply(sysctl("4096"))
    host.write("etc/sysctl.d/99-late.conf", "net.core.somaxconn = 256\n")
    rows = host.ask("verify", tuning="t", settings=[sysctl("4096")])["settings"]
    assert not rows[0]["ok"] and "99-late.conf" in rows[0]["reason"]


@pytest.mark.parametrize("name", STORED["only"])
def test_only_raise_and_only_lower(host: AgentRoot, name: str) -> None:
    case = STORED["only"][name]
    now, stored = case["now"], case["stored"]
    host.write("proc/sys/net/core/somaxconn", f"{now}\n")
    host.write("etc/sysctl.d/50-default.conf", f"net.core.somaxconn={stored}" if stored else "")
    row = row_of(host, sysctl("4096", only=case["only"]))
    assert (row["status"], row["wanted"]) == (case["status"], case["wanted"])
    assert (row["runtime"], row["persistent"]) == (now, stored)


def test_what_is_more_than_enough_now_and_enough_after_a_boot_stays_so(host: AgentRoot) -> None:
    host.write("proc/sys/net/core/somaxconn", "333\n")
    both = (sysctl("64", only="raise"), sysctl("1", "vm.swappiness"))
    assert [row["status"] for row in host.plan(*both)] == ["noop", "change"]
    host.apply(*both)
    assert host.verifies(*both)


@pytest.mark.processes
def test_a_limit_that_is_lowered_has_equal_halves(host: AgentRoot) -> None:
    lower = nginx("LimitNOFILE", "512", only="lower")
    row = row_of(host, lower)
    assert (row["runtime"], row["wanted"]) == ("1024:524288", "512")
    with host.applied(lower):
        pass


def test_raising_one_number_of_three_lowers_none(host: AgentRoot) -> None:
    host.write("proc/sys/net/ipv4/tcp_rmem", "8192\t131072\t6291456\n")
    with host.applied(sysctl("4096 131072 16777216", "net.ipv4.tcp_rmem", only="raise")):
        assert host.read("proc/sys/net/ipv4/tcp_rmem") == "8192 131072 16777216\n"


def test_a_value_that_is_only_not_stored_is_stored(host: AgentRoot) -> None:
    before = host.tree()
    host.write("proc/sys/net/core/somaxconn", "4096\n")
    row = row_of(host, sysctl("4096"))
    assert (row["status"], row["reason"]) == ("change", "would be lost at the next boot")
    result = host.apply(sysctl("4096", restart="nginx"))
    assert result["changed"] and result["restarted"] == []
    host.restore()
    host.write("proc/sys/net/core/somaxconn", "128\n")
    assert host.tree() == before


@pytest.mark.processes
@pytest.mark.parametrize("name", STORED["refused"])
def test_what_a_host_cannot_do_is_refused(host: AgentRoot, name: str) -> None:
    own, reason = setting(**STORED["refused"][name]["set"]), STORED["refused"][name]["why"]
    (host.path / "proc/sys/vm/swappiness").chmod(0o444)
    assert host.reason(own) == reason
    error = host.fail("apply", **host.change(thp("never", "defrag"), own))
    assert error["message"] == f"{own['id']}: {reason}"
    assert host.read(f"{THP}/defrag") == "madvise\n" and host.leftovers() == {"epoch"}


def test_a_host_without_programs(host: AgentRoot) -> None:
    for name in ("ethtool", "systemctl"):
        (host.path / "usr/local/sbin" / name).unlink()
    reasons = [row["reason"] for row in host.plan(channels(2), nginx("Nice", "5"))]
    assert reasons == ["there is no program ethtool", "there is no program systemctl"]
    assert host.ask("facts")["nics"]["eth0"]["channels"] is None


@pytest.mark.processes
def test_a_host_with_an_unknown_init_keeps_nothing_but_files(tmp_path: Path) -> None:
    with near_root(tmp_path / "host", init="other") as host:
        rows = host.plan(channels(2), rps("0"), thp("never"), sysctl("1"))
        assert [row["status"] for row in rows] == ["unsupported"] * 3 + ["change"]
        assert "no systemd" in rows[0]["reason"]
        error = host.fail("apply", **host.change(sysctl("1"), confirm_within=5))
        assert error["reason"] == "refused" and "confirm_within" in error["message"]


@pytest.mark.parametrize(
    ("script", "init"),
    [
        ("exec /etc/init.d/rc S\n", "other"),
        ("for i in /etc/rcS.d/S??*; do $i start; done\n", "other"),
        ("for i in /etc/init.d/S??* ;do\n$i start\ndone\n", "sysv"),
    ],
)
def test_an_init_that_does_not_run_our_script_is_not_ours(
    host: AgentRoot, script: str, init: str
) -> None:
    host.write("etc/init.d/rcS", f"#!/bin/sh\n{script}")
    assert Host(str(host.path)).init == init
    assert row_of(host, thp("never"))["status"] == ("change" if init == "sysv" else "unsupported")


@pytest.mark.processes
def test_a_setting_that_leads_out_of_the_root_is_neither_read_nor_written(
    host: AgentRoot, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("1\n")
    (host.path / "proc/sys/vm/swappiness").unlink()
    (host.path / "proc/sys/vm/swappiness").symlink_to(outside)
    before = host.tree()
    error = host.fail("apply", **host.change(channels(2), sysctl("5", "vm.swappiness")))
    assert error["reason"] == "refused" and "outside of the root" in error["message"]
    with pytest.raises(PermissionError, match="outside of the root"):
        Host(str(host.path)).write_attribute("/proc/sys/vm/swappiness", "5")
    assert outside.read_text() == "1\n"
    assert host.tree() == before


@pytest.mark.processes
def test_more_channels_leave_the_others_as_they_are(host: AgentRoot) -> None:
    host.apply(channels(2), tuning="fewer")
    host.write(f"{QUEUES}/rx-1/rps_cpus", "f\n")
    with host.applied(setting("nic.channels", {"interface": "eth0"}, {"rx": 3}), tuning="more"):
        assert "ethtool -L eth0 rx 3" in host.commands
        assert host.read(f"{QUEUES}/rx-1/rps_cpus") == "f\n"


def test_queues_that_differ_are_shown_and_come_back(host: AgentRoot) -> None:
    host.write(f"{QUEUES}/rx-1/rps_cpus", "00000000,0000000a\n")
    assert row_of(host, rps("0-3"))["runtime"] == "rx-0: , rx-1: 1,3, rx-2: , rx-3: "
    with host.applied(rps("0-3")):
        assert {host.read(f"{QUEUES}/rx-{number}/rps_cpus") for number in range(4)} == {"f\n"}
        assert row_of(host, rps(""))["runtime"] == "0-3"


@pytest.mark.parametrize("text", ["always [madvise] never\n", "madvise", "madvise\n"])
def test_huge_pages_as_the_kernel_shows_them_and_as_a_plain_file(
    host: AgentRoot, text: str
) -> None:
    host.write(f"{THP}/enabled", text)
    assert row_of(host, thp("madvise"))["runtime"] == "madvise"
    with host.applied(thp("never")):
        assert row_of(host, thp("never"))["status"] == "noop"


@pytest.mark.processes
def test_a_drop_in_that_is_read_after_ours_is_seen_first(host: AgentRoot) -> None:
    host.write(f"{NGINX_DROP_INS}/override.conf", "[Service]\nLimitNOFILE=10\n")
    assert "override.conf" in host.reason(nginx("LimitNOFILE", "65536"))


@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "now"),
    [
        ("LimitNOFILE", "1024:524288"),
        ("LimitCORE", "0:infinity"),
        ("LimitNPROC", "7823"),
        ("Nice", "-5"),
        ("CPUAffinity", "0-3"),
    ],
)
def test_a_service_has_what_its_process_has(host: AgentRoot, name: str, now: str) -> None:
    host.write(f"stub/nginx/{name}", "1\n")
    host.write(
        "proc/77/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max core file size        0                    unlimited            bytes     \n"
        "Max processes             7823                 7823                 processes \n"
        "Max open files            1024                 524288               files     \n",
    )
    host.write("proc/77/stat", "77 (a) b) S 1 77 77 0 -1 0 0 0 0 0 0 0 0 0 20 -5 1 0\n")
    assert row_of(host, nginx(name, "1"))["runtime"] == now


@pytest.mark.processes
def test_what_no_process_and_no_systemd_tells_is_not_supported(host: AgentRoot) -> None:
    host.write("stub/nginx/CPUWeight", "[not set]\n")
    assert row_of(host, nginx("CPUWeight", "1"))["runtime"] == "[not set]"
    assert host.reason(nginx("NoSuch", "1")) == "systemctl tells no NoSuch of nginx"
    host.write("stub/nginx/MainPID", "0\n")
    assert host.reason(nginx("Nice", "1")) == "nginx has no main process that tells its Nice"


def test_coupled_sysctls_of_two_tunings_are_taken_back_in_any_order(host: AgentRoot) -> None:
    host.write("proc/sys/vm/dirty_bytes", "0\n")
    host.write("proc/sys/vm/dirty_ratio", "20\n")
    host.apply(sysctl("5", "vm.dirty_ratio"), tuning="a")
    host.apply(sysctl("9999", "vm.dirty_bytes"), tuning="b")
    host.restore("a")
    assert host.read("proc/sys/vm/dirty_bytes") == "9999\n"
    host.restore("b")
    assert host.read("proc/sys/vm/dirty_ratio") == "20\n"


@pytest.mark.processes
def test_affinity_is_a_set_of_cpus(host: AgentRoot) -> None:
    host.write("proc/77/status", "Name:\tnginx\nCpus_allowed_list:\t0,1-3\n")
    host.write(f"{NGINX_DROP_INS}/10.conf", "CPUAffinity=3 2,1,0\n")
    row = row_of(host, nginx("CPUAffinity", "0,1,2-3"))
    assert (row["status"], row["runtime"], row["persistent"]) == ("noop", "0-3", "0-3")


@given(st.sets(st.integers(0, 200)))
def test_cpu_lists_and_masks_come_back(cpus: set[int]) -> None:
    assert parse_cpus(format_cpus(cpus)) == cpus
    mask = format_mask(cpus)
    assert parse_mask(mask) == cpus
    assert all(len(group) == 8 for group in mask.split(",")[1:])
