# SPDX-License-Identifier: Apache-2.0
"""Parameters of the kernel that change with others, that come late, and that files take out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Callable

import pytest

from edgetune.hosts.agent import unattended
from edgetune.hosts.agent.findings.conflicts import sysctl_not_in_force
from edgetune.hosts.agent.findings.snapshot import Snapshot
from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.kinds.sysctl_values import left_by, shown_as
from edgetune.vocabulary.kinds.sysctl import EXCLUSIVE
from tests.support.agent_root import NearRoot, sysctl, without_boot_id

Kernel = dict[str, str]
CONNTRACK = "net.netfilter.nf_conntrack_max"
MODULE = "proc/sys/net/netfilter/nf_conntrack_max"
FORWARD = "net.ipv4.ip_forward"
JOURNAL = "var/lib/edgetune/tunings/t.json"
HOOK = "etc/systemd/system/edgetune.service"


@pytest.fixture
def host(tmp_path: Path) -> NearRoot:
    return NearRoot(tmp_path / "host", init="systemd")


def dirty(kernel: Kernel, key: str, value: str) -> None:
    """Of two that exclude each other one counts, and zero cannot be written."""
    if value == "0":
        raise OSError(22, "Invalid argument")
    for pair in EXCLUSIVE:
        if key in pair:
            kernel.update(dict.fromkeys(pair, "0"))
    kernel[key] = value


def watchdog(kernel: Kernel, key: str, value: str) -> None:
    kernel[key] = value
    if key == "kernel/watchdog":
        kernel["kernel/nmi_watchdog"] = kernel["kernel/soft_watchdog"] = value
    both = kernel["kernel/nmi_watchdog"], kernel["kernel/soft_watchdog"]
    kernel["kernel/watchdog"] = max(both)


def congestion(kernel: Kernel, key: str, value: str) -> None:
    kernel[key] = value
    allowed = "net/ipv4/tcp_allowed_congestion_control"
    if key != allowed and value not in kernel[allowed].split():
        kernel[allowed] += f" {value}"


def copied(kernel: Kernel, key: str, value: str) -> None:
    """As parameters of neighbours: cards that nobody set have what `default` has, in both units."""
    cards = ["default", "eth1"] if "default" in key else [key.split("/")[3]]
    for card in cards:
        milliseconds = value if key.endswith("_ms") else str(int(value) * 10)
        kernel[f"net/ipv4/neigh/{card}/retrans_time_ms"] = milliseconds
        kernel[f"net/ipv4/neigh/{card}/retrans_time"] = str(int(milliseconds) // 10)


def from_all(kernel: Kernel, key: str, value: str) -> None:
    kernel.update(dict.fromkeys(kernel if "/all/" in key else [key], value))


LINKS = {
    # A name of an interface may sort before `all`.
    f"net/ipv6/conf/{card}/ignore_routes_with_linkdown": value
    for card, value in {"A0": "1", "all": "0", "default": "0", "eth0": "1"}.items()
}
TIMES = {
    f"net/ipv4/neigh/{card}/retrans_time{unit}": value
    for card, times in {
        "default": ("100", "1005"),
        "eth0": ("7", "70"),
        "eth1": ("100", "1005"),
    }.items()
    for unit, value in zip(("", "_ms"), times)
}


@pytest.mark.parametrize(
    ("kernel", "poke", "key", "value"),
    [
        *[
            ({pair[here]: "20000", pair[1 - here]: "0"}, dirty, pair[there], "5")
            for pair in EXCLUSIVE
            for here in (0, 1)
            for there in (0, 1)
        ],
        *[
            (
                {"kernel/watchdog": "1", "kernel/nmi_watchdog": "0", "kernel/soft_watchdog": "1"},
                watchdog,
                f"kernel/{name}",
                value,
            )
            for name, value in (("watchdog", "0"), ("soft_watchdog", "0"), ("nmi_watchdog", "1"))
        ],
        (
            {
                "net/ipv4/tcp_congestion_control": "cubic",
                "net/ipv4/tcp_allowed_congestion_control": "reno cubic",
            },
            congestion,
            "net/ipv4/tcp_congestion_control",
            "bbr",
        ),
        (LINKS, from_all, "net/ipv6/conf/all/ignore_routes_with_linkdown", "1"),
        (TIMES, copied, "net/ipv4/neigh/default/retrans_time", "50"),
        (TIMES, copied, "net/ipv4/neigh/default/retrans_time_ms", "55"),
        (TIMES, copied, "net/ipv4/neigh/eth0/retrans_time", "50"),
    ],
)
def test_what_changes_with_a_parameter_comes_back_with_it(
    host: NearRoot,
    monkeypatch: pytest.MonkeyPatch,
    kernel: Kernel,
    poke: Callable[[Kernel, str, str], None],
    key: str,
    value: str,
) -> None:
    shown = dict(kernel)

    def show() -> None:
        for name, text in shown.items():
            host.write(f"proc/sys/{name}", f"{text}\n")

    def write_attribute(own: Host, name: str, text: str) -> None:
        poke(shown, name[len("/proc/sys/") :], text.strip())
        show()

    show()
    monkeypatch.setattr(Host, "write_attribute", write_attribute)
    host.apply(sysctl(value, key))
    assert shown[key] == value and shown != kernel
    host.restore()
    assert shown == kernel


def test_an_interface_keeps_what_somebody_else_set_it_to_meanwhile(host: NearRoot) -> None:
    files = {
        card: f"proc/sys/net/ipv4/conf/{card}/rp_filter"
        for card in ("default", "eth0", "eth1", "all")
    }
    for file in files.values():
        host.write(file, "0\n")
    host.apply(sysctl("1", "net.ipv4.conf.default.rp_filter"))
    # As after a boot, which makes interfaces of the default; and by hand.
    host.write(files["eth0"], "1\n")
    host.write(files["eth1"], "2\n")
    # No default is copied to this one, so it is somebody else's also with the same value.
    host.write(files["all"], "1\n")
    host.restore()
    assert [host.read(file) for file in files.values()] == ["0\n", "0\n", "2\n", "1\n"]


def test_a_journal_of_old_has_values_in_another_form(host: NearRoot) -> None:
    allowed = "proc/sys/net/ipv4/tcp_allowed_congestion_control"
    host.write(allowed, "reno cubic\n")
    host.apply(sysctl("reno cubic bbr", "net.ipv4.tcp_allowed_congestion_control"))
    journal = json.loads(host.read(JOURNAL))
    journal["entries"][0]["before"]["runtime"] = "reno cubic"
    (host.path / JOURNAL).write_text(json.dumps(journal))
    host.restore()
    assert host.read(allowed) == "reno cubic\n" and not host.exists(JOURNAL)


def test_a_parameter_that_is_refused_by_now_is_still_taken_back(
    host: NearRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = "proc/sys/net/ipv4/ip_forward"
    host.write(forward, "0\n")
    before = without_boot_id(host.tree())
    with monkeypatch.context() as old:
        old.setattr("edgetune.vocabulary.kinds.sysctl._REFUSED", ())
        host.apply(sysctl("1", FORWARD))
    assert host.fail("verify", tuning="t", settings=[sysctl("1", FORWARD)])["field"]
    assert host.boot_hook() == [] and host.read(forward) == "1\n"
    host.restore()
    assert without_boot_id(host.tree()) == before


def test_a_diagnosis_reads_each_file_of_sysctl_d_once(
    host: NearRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [f"net.core.own{number}" for number in range(9)]
    host.write("etc/sysctl.d/60-site.conf", "".join(f"{key} = 2\n" for key in keys))
    for key in keys:
        host.write(f"proc/sys/{key.replace('.', '/')}", "1\n")
    own, real = Host(str(host.path)), Host.read
    read: list[str] = []

    def counted(self: Host, name: str) -> bytes:
        read.append(name)
        return real(self, name)

    monkeypatch.setattr(Host, "read", counted)
    with own.read_cache():
        (told,) = sysctl_not_in_force(Snapshot(own, []))
    assert told["numbers"] == {"keys": 9} and read.count("/etc/sysctl.d/60-site.conf") == 1


def test_a_parameter_of_an_interface_stands_on_that_of_all(host: NearRoot) -> None:
    for card in ("default", "eth0"):
        host.write(f"proc/sys/net/ipv4/conf/{card}/rp_filter", "0\n")
    host.apply(sysctl("1", "net.ipv4.conf.default.rp_filter"), tuning="a")
    host.apply(sysctl("2", "net.ipv4.conf.eth0.rp_filter"), tuning="b")
    assert host.fail(
        "restore", tuning="a", epoch=1, live=["sysctl:net.ipv4.conf.default.rp_filter"]
    )
    host.restore("a")
    assert host.read("proc/sys/net/ipv4/conf/eth0/rp_filter") == "2\n"
    host.restore("b")
    assert host.read("proc/sys/net/ipv4/conf/eth0/rp_filter") == "0\n"


def test_what_a_file_takes_out_of_a_pattern_is_not_taken_for_stored(host: NearRoot) -> None:
    host.write("proc/sys/net/ipv4/conf/all/rp_filter", "2\n")
    default = "net.ipv4.conf.*.rp_filter = 2\n-net.ipv4.conf.all.rp_filter\n"
    host.write("usr/lib/sysctl.d/50-default.conf", default)
    own = sysctl("2", "net.ipv4.conf.all.rp_filter")
    row = host.plan(own)[0]
    assert (row["persistent"], row["reason"]) == (None, "would be lost at the next boot")
    host.apply(own)
    assert host.plan(own)[0]["persistent"] == "2"


def test_a_later_file_that_takes_a_parameter_out_is_named(host: NearRoot) -> None:
    host.write("etc/sysctl.d/99-late.conf", "-net.core.somaxconn\n")
    row = host.plan(sysctl("4096"))[0]
    assert row["status"] == "unsupported"
    assert row["reason"] == "/etc/sysctl.d/99-late.conf is read after ours and takes it out"


def come_late(host: NearRoot, shown: str) -> list[str]:
    """Boot without the module, and load it after the boot hook; the problems of both."""
    (host.path / MODULE).unlink()
    problems = host.boot_hook()
    assert host.exists("run/edgetune-late")
    host.write(MODULE, shown)
    return problems + unattended.late(Host(str(host.path)))


def test_a_parameter_of_a_module_is_set_by_the_boot_hook_once_the_module_is_there(
    host: NearRoot,
) -> None:
    host.write(MODULE, "65536\n")
    before = host.tree()
    own = sysctl("1000000", CONNTRACK)
    host.apply(own)
    assert host.exists(HOOK)
    assert come_late(host, "65536\n") == []
    assert host.read(MODULE) == "1000000\n"
    assert host.ask("verify", tuning="t", settings=[own])["verified"]
    host.new_boot_id()
    host.write(
        "proc/sys/kernel/random/boot_id", before["proc/sys/kernel/random/boot_id"][1].decode()
    )
    host.restore()
    assert host.tree() == before


def test_a_file_alone_keeps_no_parameter_of_a_module(host: NearRoot) -> None:
    host.write(MODULE, "1000000\n")
    host.write("etc/sysctl.d/60-site.conf", f"{CONNTRACK} = 1000000\n")
    own = sysctl("1000000", CONNTRACK)
    assert host.plan(own)[0]["reason"] == "would be lost at the next boot"
    host.apply(own)
    assert host.exists(HOOK) and host.plan(own)[0]["status"] == "noop"
    assert come_late(host, "65536\n") == [] and host.read(MODULE) == "1000000\n"


def test_a_module_that_never_comes_is_told(host: NearRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    host.write(MODULE, "65536\n")
    host.apply(sysctl("1000000", CONNTRACK))
    (host.path / MODULE).unlink()
    host.boot_hook()
    monkeypatch.setattr(unattended, "LATE_WAIT", 0.0)
    problems = unattended.late(Host(str(host.path)))
    assert problems == [f"sysctl:{CONNTRACK}: is not there yet, or down"]
    why = f"there is no /{MODULE}: let modules-load.d(5) load its module"
    assert host.plan(sysctl("1000000", CONNTRACK))[0]["reason"] == why


def test_a_parameter_of_a_module_is_refused_where_no_hook_can_run(tmp_path: Path) -> None:
    host = NearRoot(tmp_path / "host", init="other")
    host.write(MODULE, "65536\n")
    assert host.plan(sysctl("1000000", CONNTRACK))[0]["reason"].startswith("nothing can keep it")


@pytest.mark.parametrize(
    ("path", "text", "now", "shown"),
    [
        ("net/core/somaxconn", "0x10", "128", "16"),
        ("net/core/somaxconn", "-010", "128", "-8"),
        ("net/core/somaxconn", "08", "128", "08"),
        ("net/core/somaxconn", "many", "128", "many"),
        ("net/core/somaxconn", "0x10", "", "0x10"),
        ("sunrpc/rpc_debug", "16", "0x0000", "16"),
        ("net/new/mask", "8", "00000010", "8"),
        ("net/new/mask", "010", "00000010", "010"),
        ("kernel/hostname", "0x10", "128", "0x10"),
        ("kernel/core_pattern", "core.%p", "core", "core.%p"),
        ("net/ipv4/ip_local_reserved_ports", "8443,8080-8082,8081", "", "8080-8082,8443"),
        ("net/ipv4/ip_local_reserved_ports", "a-b", "", "a-b"),
        ("kernel/watchdog_cpumask", "3,0-1", "0-3", "0-1,3"),
        ("net/core/flow_limit_cpu_bitmap", "0000000f", "0", "f"),
        ("net/ipv4/tcp_allowed_congestion_control", "reno cubic", "reno", "cubic reno"),
        ("net/core/rps_sock_flow_entries", "1000", "0", "1024"),
        ("fs/pipe-max-size", "1000000", "1048576", "1048576"),
        ("fs/pipe-max-size", "1", "1048576", "4096"),
    ],
)
def test_a_value_has_the_form_in_which_the_kernel_shows_it(
    path: str, text: str, now: str, shown: str
) -> None:
    assert shown_as(path, text, now) == shown
    assert shown_as(path, shown, now) == shown


def test_what_follows_the_numbers_in_a_file_is_none_of_them() -> None:
    assert left_by("net/core/somaxconn", "8 # why", "128") == "8"
    assert shown_as("net/core/somaxconn", "8 9", "128") == "8 9"
