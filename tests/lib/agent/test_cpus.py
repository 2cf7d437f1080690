# SPDX-License-Identifier: Apache-2.0
"""CPUs: what a host has, which serve a card's queues, and which are left for a service."""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.agent import boot_hook, unattended
from edgetune.agent.host import Host
from edgetune.agent.kinds import nic_irq_affinity
from edgetune.agent.topology import cpus_of_queues
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.nic_irq_affinity import POLICIES
from edgetune.base.documents.host import SeenSettings
from edgetune.base.documents.options import Options
from edgetune.base.documents.reading import encoded, taken
from edgetune.base.errors import RefusedError
from edgetune.intent.plan import make_plan
from edgetune.intent.rendering import render
from tests.support.agent_cpus import Machine, Vectors, run_nginx
from tests.support.agent_nic import QUEUES, ixgbe
from tests.support.agent_root import (
    THP,
    NearRoot,
    rps,
    setting,
    thp,
    until,
)
from tests.support.builders import pop, proofs, tuning
from tests.support.examples import examples

TWO_SOCKETS = Machine(sockets=2, cores=4, threads=2)


class CpuHost(NearRoot):
    """A host whose agent is asked in this process."""

    def row(self, own: dict[str, Any], *beside: dict[str, Any]) -> dict[str, Any]:
        """How a plan shows a setting."""
        return self.plan(own, *beside)[0]

    def verified(self, *own: dict[str, Any]) -> bool:
        return bool(self.ask("verify", tuning="t", settings=list(own))["verified"])


@pytest.fixture
def host(tmp_path: Path) -> Iterator[CpuHost]:
    root = CpuHost(tmp_path / "host")
    yield root
    root.stop()


@pytest.mark.processes
def test_cpu_scheduling_is_refused_where_nobody_knows_the_node_of_a_card(
    host: CpuHost, tmp_path: Path
) -> None:
    """And not applied in part: what would be left of it is a host without irqbalance."""
    card(host, queues=2, numa_node=-1)
    run_nginx(host)
    what = tuning("cpu_scheduling")
    own = render(what, host.ask("facts"))
    asked = host.ask("plan", tuning=what.name, digest=what.digest, settings=encoded(own))
    rows = taken(SeenSettings, asked).settings
    place = pop(tmp_path, hosts=8)
    seen = {each.name: rows for each in place.hosts}
    with pytest.raises(RefusedError, match="nic.irq_affinity:eth0: nobody knows the NUMA node"):
        make_plan(place, what, dict.fromkeys(seen, own), seen, Options(), proofs(place), {})


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nic_irq_affinity, "PATIENCE", 0.1)


def card(host: CpuHost, machine: Machine = TWO_SOCKETS, **own: Any) -> Vectors:
    """A host with a card in it."""
    machine.install(host)
    return Vectors(host, machine, **own).install()


def second_card(host: CpuHost) -> Vectors:
    return Vectors(host, TWO_SOCKETS, interface="eth1", queues=2, first=128).install()


def irqs(value: str, interface: str = "eth0") -> dict[str, Any]:
    return setting("nic.irq_affinity", {"interface": interface}, value)


def xps(value: str) -> dict[str, Any]:
    return setting("nic.xps", {"interface": "eth0"}, value)


def test_a_tuning_may_stop_irqbalance_itself() -> None:
    rows: list[tuple[str, dict[str, int | str], bool]] = [
        ("irqbalance.service", {"active": "off"}, True),
        ("irqbalance", {"active": "off", "enabled": "off"}, True),
        ("irqbalance.service", {"enabled": "off"}, False),
        ("tuned.service", {"active": "off"}, False),
    ]
    for name, value, stops in rows:
        own = Setting("unit", {"unit": name}, value, None, None)
        assert nic_irq_affinity.stops_balancer(own) == stops, (name, value)


def down(host: CpuHost, own: Vectors) -> None:
    """Boot as far as the boot hook: the driver asks for no interrupts before the link is up."""
    host.new_boot_id()
    host.write("sys/class/net/eth0/flags", "0x1002\n")
    host.write("proc/interrupts", "  CPU0\n")
    for mask in host.path.glob(f"{QUEUES}/tx-*/xps_cpus"):
        mask.write_text("0\n")


def up(host: CpuHost, own: Vectors) -> None:
    host.write("sys/class/net/eth0/flags", "0x1003\n")
    own.request()


@pytest.mark.processes
def test_interrupts_are_set_again_once_the_interface_is_up(
    host: CpuHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = card(host)
    both = (irqs("1-2"), xps("per_queue"))
    host.apply(*both)
    had = own.allowed()
    down(host, own)
    monkeypatch.setattr(unattended, "BOOT_WAIT", 300.0)
    begin = time.monotonic()
    assert host.run_hook().returncode == 0
    assert time.monotonic() - begin < 30
    assert host.exists("run/edgetune-late")
    up(host, own)
    # It waits for what the boot hook left to do.
    assert host.verified(*both)
    assert own.allowed() == had
    assert until(lambda: not host.processes())
    assert not host.exists("run/edgetune-late")


@contextmanager
def systemd_listening(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(name.replace("@", "\0"))
        systemd.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        yield systemd


@pytest.mark.processes
def test_systemd_lets_the_network_begin_before_the_rest_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = CpuHost(tmp_path / "host", init="systemd")
    own = card(host)
    both = (irqs("1-2"), rps("0-1"), thp("never"))
    host.apply(*both)
    down(host, own)
    host.write(f"{THP}/enabled", "always [madvise] never\n")
    seen: list[str] = []
    with systemd_listening(str(tmp_path / "notify"), monkeypatch) as systemd:

        def let_go() -> None:
            seen.append(host.read(f"{THP}/enabled"))
            boot_hook.let_go()

        def wait(_: float) -> None:
            if len(seen) == 1:
                seen.append(systemd.recv(100).decode())
                assert host.exists("run/edgetune-late"), "what verifies has to wait"
                up(host, own)

        monkeypatch.setattr(unattended, "let_go", let_go)
        monkeypatch.setattr(unattended.time, "sleep", wait)
        assert host.run_hook().stderr == ""
    assert seen == ["never\n", "READY=1"]
    assert not host.exists("run/edgetune-late")
    assert host.verified(*both)


@pytest.mark.processes
def test_systemd_is_told_also_of_a_boot_with_nothing_to_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = CpuHost(tmp_path / "host", init="systemd")
    host.apply(thp("never"))
    # In the abstract namespace, as systemd in a container has it.
    with systemd_listening(f"@edgetune-{os.getpid()}", monkeypatch) as systemd:
        assert host.run_hook().stderr == ""
        assert systemd.recv(100) == b"READY=1"
    assert "NOTIFY_SOCKET" not in os.environ


def test_a_change_of_queues_puts_interrupts_back(
    host: CpuHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = card(host)
    ixgbe().install(host, monkeypatch).vectors = own
    for name, cpu in zip(own.of_queues, "3210"):
        own.allow(name, cpu)
    had = own.allowed()
    channels = setting("nic.channels", {"interface": "eth0"}, {"combined": 6})
    host.apply(channels)
    assert own.allowed() == {**had, "eth0-TxRx-4": "0-15", "eth0-TxRx-5": "0-15"}
    host.restore()
    assert own.allowed() == had
    host.apply(channels, irqs("interleave"))
    assert list(own.allowed().values()) == ["0", "4", "1", "5", "2", "6"]
    host.restore()
    assert own.allowed() == had


def off(value: str = "off_nic_irqs") -> dict[str, Any]:
    return setting("cpu.service_affinity", {"service": "nginx"}, value, restart="nginx")


topologies = st.builds(
    Machine,
    sockets=st.integers(1, 4),
    cores=st.integers(1, 4),
    threads=st.integers(1, 2),
    offline=st.lists(st.integers(1, 31), max_size=6),
)


@st.composite
def placements(draw: Any) -> tuple[Machine, int, int, str]:
    """A machine, the node of its card, the number of its queues, and a policy."""
    machine = draw(topologies)
    nodes = [number for number in range(machine.sockets) if machine.node(number)]
    return machine, draw(st.sampled_from(nodes)), draw(st.integers(1, 40)), draw(policies)


policies = st.sampled_from([*POLICIES, "0"])
counter = itertools.count()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hosts")


def fresh(directory: Path) -> CpuHost:
    return CpuHost(directory / str(next(counter)))


@pytest.mark.slow
@examples(60)
@given(case=placements())
def test_every_policy_is_fair(directory: Path, case: tuple[Machine, int, int, str]) -> None:
    machine, node, queues, policy = case
    host = fresh(directory)
    machine.install(host)
    host.write("sys/class/net/eth0/device/numa_node", f"{node}\n")
    cpus = cpus_of_queues(Host(str(host.path)), "eth0", policy, queues)
    assert len(cpus) == queues
    assert set(cpus) <= machine.online
    of_cpu = Counter(cpus)
    nodes = [number for number in range(machine.sockets) if machine.node(number)]
    served = [nodes.index(machine.node_of(cpu)) for cpu in cpus]
    if policy == "local":
        assert set(cpus) <= machine.node(node)
    if policy in ("spread", "interleave"):
        assert _spread_of([served.count(place) for place in range(len(nodes))]) <= 1
    if policy == "spread":
        assert served == sorted(served)
    if policy == "interleave":
        assert served == [queue % len(nodes) for queue in range(queues)]
    for number in [node] if policy == "local" else nodes if policy != "0" else []:
        own = machine.node(number)
        assert _spread_of([of_cpu[cpu] for cpu in own]) <= 1
        # No second thread serves while there is a core that serves nothing.
        cores = {machine.core_of(cpu) for cpu in own}
        busy = [machine.core_of(cpu) for cpu in own if of_cpu[cpu]]
        assert len(set(busy)) == min(len(busy), len(cores))


def _spread_of(numbers: list[int]) -> int:
    return max(numbers) - min(numbers)


@pytest.mark.processes
def test_a_host_is_looked_at_once_for_all_its_cards(
    host: CpuHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With hundreds of queues and CPUs /proc/interrupts is long; so is /proc with its processes."""
    card(host, queues=2)
    second_card(host)
    run_nginx(host)
    host.write("proc/98/comm", "sshd\n")
    settings = (irqs("0-1"), irqs("6-7", "eth1"), off())
    host.apply(*settings)
    seen: Counter[str] = Counter()
    read = Host.read

    def count(kernel: Host, name: str) -> bytes:
        seen[name] += 1
        return read(kernel, name)

    monkeypatch.setattr(Host, "read", count)
    for look in (lambda: host.plan(*settings), lambda: host.ask("sample")):
        seen.clear()
        look()
        assert seen["/proc/98/comm"] == seen["/proc/irq/64/smp_affinity_list"] == 1
        assert seen["/proc/interrupts"] == 1
