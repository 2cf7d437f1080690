# SPDX-License-Identifier: Apache-2.0
"""The lab of namespaces: real reboots, real drops, and not a trace of it on the machine."""

from __future__ import annotations

import csv
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lab import pop
from lab.bmc.machine import uuid_of
from tests.support import ROOT
from tests.support.practice import needs_lab
from tests.support.waiting import wait_until

Before = tuple[dict[str, bytes], dict[str, str], float]
pytestmark = needs_lab
HOSTS = 4
PATIENCE = 60.0  # seconds; most of it takes one, on a machine with nothing else to do
ENTER = """
import os, sys, pathlib
sys.path.insert(0, sys.argv[1])
from lab import pop
pop.enter_controller(pathlib.Path(sys.argv[2]))
os.execvp(sys.argv[3], sys.argv[3:])
"""
ASK_HAPROXY = """
import socket, sys
with socket.create_connection(("10.77.0.3", 9999), timeout=30) as connection:
    connection.sendall(sys.argv[1].encode() + b"\\n")
    print(connection.makefile().read())
"""
COME_UP = """
import sys, pathlib
sys.path.insert(0, sys.argv[1])
from lab import pop
from tests.support import ROOT

pop.up(pathlib.Path(sys.argv[2]), hosts=2, load=False)
"""
# What moves by itself on a machine where other programs run.
RESTLESS = (
    "kernel/random/",
    "fs/dentry-state",
    "fs/file-nr",
    "fs/inode-nr",
    "fs/inode-state",
    "fs/quota/",
    "fs/aio-nr",
    "kernel/ns_last_pid",
    "kernel/pty/nr",
    "kernel/perf_event_max_sample_rate",
    "net/netfilter/nf_conntrack_count",
    "transparent_hugepage/khugepaged/full_scans",
    "transparent_hugepage/khugepaged/pages_collapsed",
    "/stats/",
)


def inside(home: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the controller's network namespace."""
    words = entering(home, *command)
    return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)


def entering(home: Path, *command: str) -> list[str]:
    return [sys.executable, "-c", ENTER, str(ROOT), str(home), *command]


def on(home: Path, host: str, command: str) -> str:
    """What a shell command prints on a host."""
    done = inside(home, *ssh(home, host, command, patience=30))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def try_on(home: Path, host: str, command: str) -> subprocess.CompletedProcess[str]:
    """On a host that may not answer."""
    return inside(home, *ssh(home, host, command))


def ssh(home: Path, host: str, command: str, patience: int = 2) -> list[str]:
    options = ["BatchMode=yes", f"ConnectTimeout={patience}", "KexAlgorithms=curve25519-sha256"]
    options.append(f"UserKnownHostsFile={home}/lab/known_hosts")
    words = [word for option in options for word in ("-o", option)]
    address = f"root@10.77.1.{int(host[1:]) + 1}"
    return ["ssh", *words, "-i", f"{home}/lab/id_ed25519", address, command]


def haproxy(home: Path, command: str) -> str:
    return inside(home, sys.executable, "-c", ASK_HAPROXY, command).stdout


def servers(home: Path) -> dict[str, dict[str, str]]:
    rows = csv.DictReader(haproxy(home, "show stat edges 4 -1").lstrip("# ").splitlines())
    return {row["svname"]: row for row in rows}


def server(home: Path, host: str) -> dict[str, str]:
    return servers(home)[host]


def is_serving(home: Path, *hosts: str) -> bool:
    """Whether all of them are."""
    found = servers(home)
    return all(
        (found[host]["check_status"], found[host]["status"]) == ("L7OK", "UP") for host in hosts
    )


def reboot(home: Path, host: str) -> None:
    """Reboot and wait for another boot_id."""
    question = "cat /proc/sys/kernel/random/boot_id"
    before = on(home, host, question)
    try_on(home, host, "reboot")

    def is_back() -> bool:
        done = try_on(home, host, question)
        return done.returncode == 0 and done.stdout.strip() != before

    wait_until(is_back, f"reboot of {host}")


def uptime(home: Path, host: str) -> float:
    return float(on(home, host, "cut -d' ' -f1 /proc/uptime"))


def state_of(home: Path, host: str) -> str:
    state = pop.status(home)
    assert state is not None
    return next(str(item["state"]) for item in state["hosts"] if item["name"] == host)


def settings_of_machine() -> dict[str, bytes]:
    """Every readable file of /proc/sys that does not move by itself, and the huge page files."""
    found = {}
    trees = [Path("/proc/sys", top) for top in ("fs", "kernel", "net", "vm")]
    trees.append(Path("/sys/kernel/mm/transparent_hugepage"))
    for path in (path for tree in trees for path in tree.rglob("*") if path.is_file()):
        if "binfmt_misc" not in path.parts and not any(name in str(path) for name in RESTLESS):
            try:
                found[str(path)] = path.read_bytes()
            except OSError:
                continue
    return found


def shape_of_machine() -> dict[str, str]:
    commands = ("ip -brief link", "ip -brief address", "ip route", "ip netns")
    shape = {name: subprocess.getoutput(name) for name in commands}
    shape["mounts"] = Path("/proc/self/mountinfo").read_text()
    return shape


def family(pid: int) -> set[tuple[int, str]]:
    """(PID, start time) of a process and of all that descend from it."""
    parents, starts = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1])
        starts[int(path.parent.name)] = fields[19]
    members = {pid}
    while True:
        more = {child for child, parent in parents.items() if parent in members} - members
        if not more:
            return {(member, starts[member]) for member in members if member in starts}
        members |= more


def is_alive(member: tuple[int, str]) -> bool:
    try:
        fields = Path(f"/proc/{member[0]}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[19] == member[1] and fields[0] not in "ZX"


@pytest.fixture(scope="module")
def before() -> Before:
    """The machine before there was a lab, and when that was."""
    return settings_of_machine(), shape_of_machine(), time.monotonic()


@pytest.fixture(scope="module")
def home(before: Before, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A running lab of four hosts; its path is too long for the address of a Unix socket."""
    home = tmp_path_factory.mktemp("lab") / ("long" * 30)
    pop.up(home, hosts=HOSTS)
    yield home
    pop.down(home)


def test_up_writes_what_the_pack_needs(home: Path) -> None:
    config = yaml.safe_load((home / "edgetune.yaml").read_text())
    inventory = yaml.safe_load(Path(config["inventory"]).read_text())
    hosts = inventory["pops"]["lab1"]["hosts"]
    assert list(hosts) == ["e000", "e001", "e002", "e003"]
    assert hosts["e003"] == {
        "address": "10.77.1.4",
        "port": 22,
        "rack": "r2",
        "hardware": "lab",
        "server": "e003",
        "bmc": {"address": "https://10.77.129.4", "machine": uuid_of("e003")},
    }
    assert config["records"] == f"sqlite:///{home}/edgetune.sqlite"
    assert stat.S_IMODE(Path(config["ssh_key_file"]).stat().st_mode) == 0o600
    state = json.loads((home / "lab/state.json").read_text())
    assert state["kind"] == "namespaces"
    assert state == pop.status(home)


def test_host_is_a_machine_of_its_own(home: Path, before: Before) -> None:
    assert on(home, "e001", "hostname") == "e001"
    assert on(home, "e001", "tr '\\0' ' ' < /proc/1/cmdline") == "/usr/bin/busybox init"
    assert uptime(home, "e001") < time.monotonic() - before[2] + 1
    assert on(home, "e001", "ls -A /root /home /mnt /tmp").split() == [
        *("/home:", "/mnt:", "/root:", ".ssh", "/tmp:")
    ]
    assert "cron.d" not in on(home, "e001", "ls /etc").split()
    for program in ("/usr/bin/python3", "/usr/local/sbin/systemctl", "/usr/local/sbin/ethtool"):
        assert on(home, "e001", f"command -v {Path(program).name}") == program
    assert on(home, "e001", "ls -d /run/systemd/system 2>/dev/null || echo none") == "none"
    assert on(home, "e001", "ip route") == (
        "10.77.0.0/16 dev eth0 proto kernel scope link src 10.77.1.2"
    )
    for command in ("echo 1 > /sys/kernel/mm/ksm/run", "date -s 2020-01-01", "mknod /x b 1 1"):
        assert try_on(home, "e001", command).returncode != 0, command


def test_programs_of_a_host_refuse_to_run_on_the_machine() -> None:
    for program in ("etc/init.d/rcS", "etc/init.d/rcK", "usr/local/sbin/reboot"):
        text = (ROOT / "lab/pop/image" / program).read_text()
        assert 'lab-address ] || { echo "this is no lab host" >&2; exit 1; }' in text


def test_settings_of_one_host_are_its_own(home: Path) -> None:
    keys = "vm.swappiness net.core.netdev_max_backlog kernel.pid_max net.ipv4.tcp_fin_timeout"
    other = on(home, "e001", f"sysctl {keys}")
    pages = "/sys/kernel/mm/transparent_hugepage/enabled"
    changes = "vm.swappiness=7 net.core.netdev_max_backlog=7777 kernel.pid_max=7777"
    on(home, "e000", f"sysctl -qw {changes} net.ipv4.tcp_fin_timeout=7; echo never > {pages}")
    assert on(home, "e000", f"sysctl -n {keys}").split() == ["7", "7777", "7777", "7"]
    assert on(home, "e000", f"cat {pages}") == "never"
    assert on(home, "e001", f"sysctl {keys}") == other
    assert on(home, "e001", f"cat {pages}") == "always [madvise] never"


def test_killed_supervisor_leaves_nothing_and_disturbs_no_other_lab(
    home: Path, tmp_path: Path
) -> None:
    mounts = Path("/proc/self/mountinfo").read_text()
    pid = pop.up(tmp_path, hosts=2, load=False)["pid"]
    # The client's process takes longer to start than HAProxy takes to check a few hosts.
    assert pop.client_counts(tmp_path)["requests"] == 0
    assert on(tmp_path, "e001", "hostname") == "e001"
    members = family(pid)
    assert len(members) > 8
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(is_alive(member) for member in members), "end of all")
    assert pop.status(tmp_path) is None
    wait_until(lambda: pop.down(tmp_path) is False, "the lock")
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert on(home, "e003", "hostname") == "e003"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_up_that_is_stopped_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", COME_UP, str(ROOT), str(tmp_path)]
    for _ in range(5):  # one that is up already when the signal comes has not been stopped
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_until(lambda: (tmp_path / "lab/console/e001.log").exists(), "half way up")
        supervisor = Path("/proc", (tmp_path / "lab/lock").read_text().strip())
        members = family(int(supervisor.joinpath("stat").read_text().split()[3]))
        assert len(members) > 3
        process.send_signal(number)
        if process.wait(PATIENCE) != 0:
            break
        assert pop.down(tmp_path)
        (tmp_path / "lab/console/e001.log").unlink()
    else:
        raise AssertionError("it was never stopped half way")
    wait_until(lambda: not any(is_alive(member) for member in members), "end of all")
    assert pop.status(tmp_path) is None
    wait_until(lambda: pop.down(tmp_path) is False, "the lock")


def test_failed_up_is_one_clear_line(tmp_path: Path) -> None:
    bad = tmp_path / "lab"
    bad.mkdir()
    (bad / "inventory.yaml").mkdir()
    with pytest.raises(pop.LabError, match=r"did not come up: .*inventory.yaml") as error:
        pop.up(tmp_path, hosts=1)
    assert "\n" not in str(error.value)
    assert pop.down(tmp_path) is False


def test_machine_is_as_it_was(home: Path, before: Before) -> None:
    state = pop.status(home)
    assert state is not None
    members = family(state["pid"])
    assert pop.down(home) is True
    assert not [member for member in members if is_alive(member)]
    assert pop.status(home) is None
    assert list((home / "lab").glob("disks")) == []
    settings, shape, _ = before
    assert settings_of_machine() == settings
    assert shape_of_machine() == shape
