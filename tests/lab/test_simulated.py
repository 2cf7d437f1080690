# SPDX-License-Identifier: Apache-2.0
"""The simulated lab: the real agent over real SSH on private roots, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import paramiko
import pytest
import yaml

from edgetune.base.errors import InputError
from edgetune.intent.campaign import find_campaign, pops_by_ring
from edgetune.net.hosts.fleet import Fleet
from edgetune.net.inventories.yaml import YamlInventory
from edgetune.net.traffic.drivers.haproxy import Haproxy
from edgetune.site.config import read_config
from edgetune.site.inventory import Host
from lab import simulated
from lab.bmc.machine import serial_of, uuid_of
from lab.pop.layout import Layout
from lab.simulated import commands
from tests.support import ROOT
from tests.support.lab_host_bmc import Bmc
from tests.support.waiting import about, wait_until

pytestmark = pytest.mark.processes

SOMAXCONN = {
    "id": "sysctl:net.core.somaxconn",
    "kind": "sysctl",
    "target": {"key": "net.core.somaxconn"},
    "value": "4096",
    "only": None,
    "restart": None,
}


def setting(kind: str, value: Any, restart: str | None = None, **target: str) -> dict[str, Any]:
    name = f"{kind}:{'.'.join(target.values())}"
    return dict(SOMAXCONN, id=name, kind=kind, target=target, value=value, restart=restart)


EVERY_KIND = [
    SOMAXCONN,
    setting("nic.channels", {"rx": 2, "tx": 2}, interface="eth0"),
    setting("nic.rps", "0-1", interface="eth0"),
    setting("memory.thp", "madvise", file="enabled"),
    setting("service.property", "65536", "nginx", service="nginx", property="LimitNOFILE"),
]


class Lab:
    """A running lab and the pack's own ways to it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.config = read_config(yaml.safe_load((home / "edgetune.yaml").read_text()))
        self.fleet = Fleet(self.config)
        self.pop = YamlInventory(self.config.inventory).pop("lab1")
        self.balancer = Haproxy(**self.pop.load_balancer.fields)

    def root(self, name: str) -> Path:
        return self.home / "lab/hosts" / name / "root"

    def ask(self, name: str, verb: str, **request: Any) -> Mapping[str, Any]:
        answer = self.fleet.ask([self.pop.host(name)], verb, lambda host: request)[name]
        assert not answer.failed, answer.error
        return answer.data

    def apply(self, name: str, settings: list[dict[str, Any]], within: float = 0) -> Any:
        change: dict[str, Any] = {"tuning": "trial", "digest": "d1", "settings": settings}
        rows = self.ask(name, "plan", **change)["settings"]
        assert {row["status"] for row in rows} == {"change"}, rows
        expect = {row["id"]: {key: row[key] for key in ("runtime", "persistent")} for row in rows}
        change.update(epoch=1, rollout="r1", expect=expect)
        return self.ask(name, "apply", confirm_within=within, grace_boots=1, **change)

    def restore(self, name: str) -> Mapping[str, Any]:
        return self.ask(name, "restore", epoch=1, tuning="trial")

    def reboot(self, name: str) -> str:
        """Reboot a host and wait for it; its new boot_id comes back."""
        old = self.ask(name, "facts")["boot_id"]
        assert self.ask(name, "reboot", epoch=1, boot_id=old)["rebooting"]
        wait_until(lambda: self.boot_id(name) not in ("", old))
        return self.boot_id(name)

    def boot_id(self, name: str) -> str:
        """Empty while it does not answer."""
        answer = self.fleet.ask([self.pop.host(name)], "facts", lambda host: {})[name]
        return str(answer.data.get("boot_id", ""))


def answers(host: Host) -> bool:
    try:
        with socket.create_connection((host.address, host.port), 30) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def assert_nothing_left(home: Path, hosts: tuple[Host, ...]) -> None:
    assert about(home) == []
    assert [host.name for host in hosts if answers(host)] == []
    assert simulated.status(home) is None
    assert not (home / "lab/hosts").exists()
    assert [path.name for path in Layout(home).secrets if path.exists()] == []


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    home = tmp_path_factory.mktemp("lab")
    simulated.up(home, hosts=4)
    try:
        yield Lab(home)
    finally:
        simulated.down(home)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    simulated.down(tmp_path)


def test_up_and_down_and_a_stranger_with_the_recorded_pid(home: Path) -> None:
    before = time.monotonic()
    state = simulated.up(home, hosts=8)
    assert time.monotonic() - before < 60
    assert state["kind"] == "simulated"
    assert [host["state"] for host in state["hosts"]] == ["on"] * 8
    assert simulated.status(home) == state == json.loads(Layout(home).state.read_text())
    lab = Lab(home)
    assert all(answers(host) for host in lab.pop.hosts)
    assert len(set(Layout(home).known_hosts.read_text().split()[2::3])) == 8
    with pytest.raises(simulated.LabError, match="already running"):
        simulated.up(home)
    assert all(answers(host) for host in lab.pop.hosts)
    assert simulated.down(home)
    assert_nothing_left(home, lab.pop.hosts)
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        Layout(home).state.write_text(json.dumps(dict(state, pid=stranger.pid)))
        assert simulated.status(home) is None
        assert not simulated.down(home)
        assert stranger.poll() is None
    finally:
        stranger.communicate(b"\n")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"hosts": 0}, "1 to 250 hosts"),
        ({"hosts": 251}, "1 to 250 hosts"),
        *(({"pops": pops}, "cannot share 8 hosts evenly") for pops in (0, 3, 10)),
        *(({"freebsd": many}, f"of 8 hosts 0 to 8 have FreeBSD, not {many}") for many in (-1, 9)),
        ({"freebsd": 8, "releases": ["13", "12"]}, "have FreeBSD 13 and 14, not '12'"),
        ({"freebsd": 8, "releases": [""]}, "have FreeBSD 13 and 14, not ''"),
    ],
)
def test_what_a_lab_cannot_be(home: Path, given: dict[str, Any], why: str) -> None:
    with pytest.raises(simulated.LabError, match=why):
        simulated.up(home, **given)


def test_two_pops_share_the_hosts(home: Path, running: Lab) -> None:
    simulated.up(home, hosts=4, pops=2)
    config = read_config(yaml.safe_load((home / "edgetune.yaml").read_text()))
    inventory = YamlInventory(config.inventory)
    pops = [inventory.pop(name) for name in inventory.pop_names()]
    assert [(pop.name, [host.name for host in pop.hosts]) for pop in pops] == [
        ("lab1", ["e000", "e001"]),
        ("lab2", ["e002", "e003"]),
    ]
    for pop in pops:
        servers = Haproxy(**pop.load_balancer.fields).servers()
        assert set(servers) == {host.name for host in pop.hosts}
    campaign = find_campaign("practice", config.campaigns)
    assert pops_by_ring(campaign, inventory) == {"canary": ("lab1",), "fleet": ("lab2",)}
    with pytest.raises(InputError, match="no campaign 'practice'"):
        find_campaign("practice", running.config.campaigns)


def test_a_busy_host_answers_late(running: Lab) -> None:
    def seconds(host: str) -> float:
        began = time.monotonic()
        with urlopen(f"{running.pop.health}/{host}", timeout=60) as answer:
            assert answer.status == 200
        return time.monotonic() - began

    simulated.inject(running.home, "busy", "e001")
    assert seconds("e001") >= 0.5
    wait_until(lambda: seconds("e000") < 0.5)
    assert seconds("e001") >= 0.5
    simulated.heal(running.home)
    wait_until(lambda: seconds("e001") < 0.5)
    for fault, target, why in (("cut", "e001", "is busy, not cut"), ("busy", "e9", "no host e9")):
        with pytest.raises(simulated.LabError, match=why):
            simulated.inject(running.home, fault, target)


def test_a_killed_lab_leaves_nothing(home: Path) -> None:
    for victim in ("guard", "hosts"):
        state = simulated.up(home, hosts=2)
        lab = Lab(home)
        lab.apply("e000", EVERY_KIND[1:2], within=300)  # its revert timer waits in the background
        wait_until(lambda: len(about(home)) == 3)
        guard = state["pid"]
        children = Path(f"/proc/{guard}/task/{guard}/children").read_text().split()
        os.kill(guard if victim == "guard" else int(children[0]), signal.SIGKILL)
        wait_until(lambda: not about(home))
        assert_nothing_left(home, lab.pop.hosts)
    simulated.up(home, hosts=2)


def test_an_interrupted_up_leaves_nothing(home: Path) -> None:
    command = (
        "import sys, pathlib; from lab.simulated import up; up(pathlib.Path(sys.argv[1]), 200)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", command, str(home)], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    wait_until((home / "lab/hosts/e000").exists)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) != 0
    assert_nothing_left(home, ())


AS_NOBODY = ["setpriv", "--reuid=65534", "--clear-groups", "--"]
PROBE = "import asyncssh, subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)"
ROUND_TRIP = """
import os, pathlib, sys
from lab import simulated
from tests.support import ROOT
from tests.lab.test_simulated import EVERY_KIND, Lab
home = pathlib.Path(sys.argv[1])
state = simulated.up(home, 2)
try:
    lab = Lab(home)
    lab.apply("e000", EVERY_KIND)
    lab.restore("e000")
    print(os.getuid(), state["kind"])
finally:
    print(simulated.down(home))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="everything here runs without root anyway")
def test_without_root() -> None:
    # A Python below /root can be started by root only.
    for python in (sys.executable, "/usr/bin/python3"):
        if as_nobody(python, PROBE).returncode == 0:
            break
    else:
        pytest.skip("no other user can run a Python with the needed packages")
    # Temporary files of the tests are below a folder that is for nobody else.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        home = Path(directory)
        os.chown(home, 65534, 65534)
        done = as_nobody(python, ROUND_TRIP, str(home))
        assert done.stdout.split() == ["65534", "simulated", "True"], done.stderr
        assert about(home) == []


def as_nobody(python: str, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT), *sys.path])
    return subprocess.run(
        [*AS_NOBODY, python, "-c", code, *arguments],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_change_and_its_restore(running: Lab) -> None:
    machine = Path("/proc/sys/net/core/somaxconn")
    machine_before = machine.read_text() if machine.exists() else ""
    before = snapshot(running.root("e000"))
    known = {"uuid": uuid_of("e000"), "serial": serial_of("e000")}
    assert running.ask("e000", "facts")["machine"] == known
    assert running.apply("e000", EVERY_KIND, within=300)["state"] == "provisional"
    assert (running.root("e000") / "proc/sys/net/core/somaxconn").read_text() == "4096\n"
    assert running.root("e000").joinpath(commands.NIC_QUEUES, "rx-2").exists() is False
    confirmed = running.ask("e000", "confirm", epoch=1, tuning="trial", settings=EVERY_KIND)
    assert confirmed["confirmed"], confirmed
    assert confirmed["services"] == {"nginx": "active"}
    running.restore("e000")
    assert snapshot(running.root("e000")) == before
    assert (machine.read_text() if machine.exists() else "") == machine_before


def snapshot(root: Path) -> dict[str, str]:
    """All settings, as files below the root."""
    counting = ("statistics/", "proc/net/", "proc/stat", "proc/uptime", "proc/softirqs")
    counting += ("var/lib/", "var/log/", "run/", "proc/interrupts")
    found = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
    return {
        name: path.read_text()
        for name, path in found.items()
        if not any(part in name for part in counting) and not name.endswith(".new")
    }


def test_a_change_persists_over_a_reboot(running: Lab) -> None:
    root = running.root("e001")
    running.apply("e001", EVERY_KIND)
    (root / "proc/sys/vm/swappiness").write_text("1\n")  # nobody stored it
    running.reboot("e001")
    verified = running.ask("e001", "verify", tuning="trial", settings=EVERY_KIND)
    assert verified["verified"], verified
    assert commands.backlog(root) == 4096
    assert (root / "proc/sys/vm/swappiness").read_text() == "60\n"
    state = simulated.status(running.home)
    assert state is not None
    assert {host["name"]: host["boots"] for host in state["hosts"]}["e001"] == 2
    running.restore("e001")


def test_only_the_agent_runs_and_only_for_the_labs_key(running: Lab) -> None:
    import asyncssh

    key = paramiko.Ed25519Key.from_private_key_file(str(running.config.ssh_key_file))
    agent = "python3 -I -S -c"
    for command in ("id", "python3 -c 1", f"{agent} 'x' more", f"{agent} 1; id", "'"):
        status, output, complaint = execute(running, key, command)
        assert (status, output) == (126, b"")
        assert b"host agent only" in complaint
    text = asyncssh.generate_private_key("ssh-ed25519").export_private_key().decode()
    path = running.home / "other"
    path.write_text(text)
    with pytest.raises(paramiko.AuthenticationException):
        execute(running, paramiko.Ed25519Key.from_private_key_file(str(path)), "id")


def execute(lab: Lab, key: paramiko.PKey, command: str) -> tuple[int, bytes, bytes]:
    target = lab.pop.host("e000")
    with paramiko.SSHClient() as client:
        client.load_host_keys(str(lab.config.ssh_known_hosts))
        client.connect(
            target.address, target.port, "root", pkey=key, allow_agent=False, look_for_keys=False
        )
        _, output, complaint = client.exec_command(command)
        data = output.read(), complaint.read()
        return output.channel.recv_exit_status(), *data


def test_a_reset_by_its_bmc_boots_a_host_and_sets_its_bios(running: Lab) -> None:
    def first() -> dict[str, Any]:
        state = simulated.status(running.home)
        assert state is not None
        return dict(state["hosts"][0])

    bmc, boots = Bmc(running.home, "e000"), first()["boots"]
    address = {"address": bmc.address, "personality": "dell", "faults": []}
    assert first()["bmc"] == {**address, "snoop_mode": "early"}
    bmc.set(SnoopMode="HomeSnoop")
    bmc.reset("ForceOff")
    wait_until(lambda: first()["state"] == "off")
    assert bmc.system["PowerState"] == "Off"
    bmc.reset("On")
    wait_until(lambda: (first()["state"], first()["boots"]) == ("on", boots + 1))
    assert first()["bmc"] == {**address, "snoop_mode": "home"}


def test_a_configuration_of_somebody_s_own_is_not_overwritten(tmp_path: Path) -> None:
    own = tmp_path / "edgetune.yaml"
    own.write_text("inventory: /etc/fleet.yaml\n", encoding="utf-8")
    with pytest.raises(simulated.LabError, match="is not a lab's; move it away"):
        simulated.up(tmp_path, hosts=1)
    assert own.read_text(encoding="utf-8") == "inventory: /etc/fleet.yaml\n"
