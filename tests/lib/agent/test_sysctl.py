# SPDX-License-Identifier: Apache-2.0
"""Parameters of the kernel that change with others, that come late, and that files take out."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

import pytest

from edgetune.agent.findings.conflicts import sysctl_not_in_force
from edgetune.agent.findings.snapshot import Snapshot
from edgetune.agent.host import Host
from edgetune.agent.kinds.sysctl import left_by, shown_as
from edgetune.agent.vocabulary.kinds.sysctl import EXCLUSIVE
from tests.support.agent_root import NearRoot, channels, sysctl, without_boot_id
from tests.support.cases import table

INIT = "systemd"

Kernel = dict[str, str]
FORWARD = "net.ipv4.ip_forward"


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


LINK, NEIGHBOUR = "ignore_routes_with_linkdown", "net/ipv4/neigh"
# A name of an interface may sort before `all`.
LINKS = {
    f"net/ipv6/conf/{card}/{LINK}": value
    for card, value in {"A0": "1", "all": "0", "default": "0", "eth0": "1"}.items()
}
RETRANS = {"default": ("100", "1005"), "eth0": ("7", "70"), "eth1": ("100", "1005")}
TIMES = {
    f"{NEIGHBOUR}/{card}/retrans_time{unit}": value
    for card, times in RETRANS.items()
    for unit, value in zip(("", "_ms"), times)
}
DOGS = {"kernel/watchdog": "1", "kernel/nmi_watchdog": "0", "kernel/soft_watchdog": "1"}
CHOSEN = "net/ipv4/tcp_congestion_control"
ALGORITHMS = {CHOSEN: "cubic", "net/ipv4/tcp_allowed_congestion_control": "reno cubic"}


@pytest.mark.parametrize(
    ("kernel", "poke", "key", "value"),
    [
        *[
            ({pair[here]: "20000", pair[1 - here]: "0"}, dirty, pair[there], "5")
            for pair in EXCLUSIVE
            for here in (0, 1)
            for there in (0, 1)
        ],
        (DOGS, watchdog, "kernel/watchdog", "0"),
        (DOGS, watchdog, "kernel/soft_watchdog", "0"),
        (DOGS, watchdog, "kernel/nmi_watchdog", "1"),
        (ALGORITHMS, congestion, CHOSEN, "bbr"),
        (LINKS, from_all, f"net/ipv6/conf/all/{LINK}", "1"),
        (TIMES, copied, f"{NEIGHBOUR}/default/retrans_time", "50"),
        (TIMES, copied, f"{NEIGHBOUR}/default/retrans_time_ms", "55"),
        (TIMES, copied, f"{NEIGHBOUR}/eth0/retrans_time", "50"),
    ],
)
def test_what_changes_with_a_parameter_comes_back_with_it(
    host: NearRoot, kernel: Kernel, poke: Callable[[Kernel, str, str], None], key: str, value: str
) -> None:
    shown = dict(kernel)

    def show() -> None:
        for name, text in shown.items():
            host.write(f"proc/sys/{name}", f"{text}\n")

    def write_attribute(own: Host, name: str, text: str) -> None:
        poke(shown, name[len("/proc/sys/") :], text.strip())
        show()

    show()
    host.patch.setattr(Host, "write_attribute", write_attribute)
    with host.applied(sysctl(value, key)):
        assert shown[key] == value and shown != kernel
    assert shown == kernel


def test_a_parameter_that_is_refused_by_now_is_still_taken_back(host: NearRoot) -> None:
    forward = "proc/sys/net/ipv4/ip_forward"
    host.write(forward, "0\n")
    before = without_boot_id(host.tree())
    with host.patch.context() as old:
        old.setattr("edgetune.agent.vocabulary.kinds.sysctl._REFUSED", ())
        host.apply(sysctl("1", FORWARD))
    assert host.fail("verify", tuning="t", settings=[sysctl("1", FORWARD)])["field"]
    assert host.boot_hook() == [] and host.read(forward) == "1\n"
    host.restore()
    assert without_boot_id(host.tree()) == before


def test_a_diagnosis_reads_each_file_of_sysctl_d_once(host: NearRoot) -> None:
    keys = [f"net.core.own{number}" for number in range(9)]
    host.write("etc/sysctl.d/60-site.conf", "".join(f"{key} = 2\n" for key in keys))
    for key in keys:
        host.write(f"proc/sys/{key.replace('.', '/')}", "1\n")
    own, real, read = Host(str(host.path)), Host.read, list[str]()

    def counted(self: Host, name: str) -> bytes:
        read.append(name)
        return real(self, name)

    host.patch.setattr(Host, "read", counted)
    with own.read_cache():
        (told,) = sysctl_not_in_force(Snapshot(own, []))
    assert told["numbers"] == {"keys": 9} and read.count("/etc/sysctl.d/60-site.conf") == 1


FORMS = table(Path(__file__).with_name("forms.yaml"))


@pytest.mark.parametrize(("path", "text", "now", "shown"), FORMS)
def test_a_value_has_the_form_in_which_the_kernel_shows_it(
    path: str, text: str, now: str, shown: str
) -> None:
    assert shown_as(path, text, now) == shown
    assert shown_as(path, shown, now) == shown


def test_what_follows_the_numbers_in_a_file_is_none_of_them() -> None:
    assert left_by("net/core/somaxconn", "8 # why", "128") == "8"
    assert shown_as("net/core/somaxconn", "8 9", "128") == "8 9"


@pytest.mark.processes
def test_a_setting_that_leads_out_of_the_root_is_neither_read_nor_written(
    host: NearRoot, tmp_path: Path
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
