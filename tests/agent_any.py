# SPDX-License-Identifier: Apache-2.0
"""Hosts of every make, and every setting that they can be asked for.

An `AnyHost` has a card with interrupts, CPUs, routes, a tmpfs, nginx and irqbalance, all doubles in
this process, so that a tuning of any kinds can be carried out on it, and it can boot.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from edgetune.hosts.agent import alone, standby
from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.kinds import (
    KINDS,
    memory_watermarks,
    nic_irq_affinity,
    sched_migration_cost,
)
from edgetune.hosts.agent.kinds.route_text import Route
from edgetune.hosts.agent.placement import POLICIES
from edgetune.hosts.agent.values import format_cpus
from tests import agent_nic
from tests.agent_cpus import Machine, Vectors, run_nginx
from tests.agent_nic import CARDS, QUEUES, TABLE, Card, Make, NicHost, steer
from tests.agent_programs import DEFAULT, Answer, Routes, Systemd, Tmpfs, instead
from tests.agent_root import setting, thp, unit

MAKES = (*CARDS, agent_nic.veth)
MACHINES = (Machine(sockets=1, cores=4, threads=1), Machine(sockets=2, cores=4, threads=2))
CACHE = "/var/cache/nginx"
FLAGS = "sys/class/net/eth0/flags"
ETH0 = {"interface": "eth0"}
NGINX = {"service": "nginx"}
NUMBERS = {
    "proc/sys/vm/min_free_kbytes": 67584,
    "proc/sys/vm/watermark_scale_factor": 10,
    "proc/sys/vm/watermark_boost_factor": 15000,
    "proc/sys/vm/dirty_ratio": 20,
    "proc/sys/vm/dirty_bytes": 0,
    TABLE: 0,
}
OWN_FILE = "/etc/nginx/nginx.conf"


@dataclass(frozen=True)
class Build:
    """What a host is made of; ``old`` ones have the migration cost as a sysctl, others nowhere."""

    card: Make
    machine: Machine
    init: str = "systemd"
    old: bool = True
    balanced: bool = False


class AnyHost(NicHost):
    """One host. ``trace`` has the kind of each change that was made, as its doubles saw it."""

    def __init__(self, path: Path, build: Build) -> None:
        super().__init__(path, build.init)
        self.build, self.by_hand = build, False
        self.trace: list[str] = []
        build.machine.install(self)
        self.write("proc/meminfo", f"MemTotal: {build.machine.node_kb} kB\nSwapTotal: 0 kB\n")
        for name, number in NUMBERS.items():
            self.write(name, f"{number}\n")
        if build.old:
            self.write(sched_migration_cost.OLD[1:], "500000\n")
        self.write(OWN_FILE[1:], "worker_processes auto;\n").chmod(0o640)
        self.write(FLAGS, "0x1003\n")
        run_nginx(self)
        balancer = ("active", "enabled") if build.balanced else ("inactive", "disabled")
        self.make_unit("irqbalance.service", *balancer)
        self.systemd = Systemd(self, cpus=format_cpus(build.machine.online))
        self.systemd.processes = {"irqbalance.service": "irqbalance"}
        self.systemd.show_processes()
        self.routes = Routes(self, DEFAULT)
        self.tmpfs = Tmpfs(self, "prefer:0", CACHE)
        self.card = build.card()
        self.vectors = self._make_vectors()
        self.card.stand_in(self, self.vectors)
        memory = ("proc/sys/*/**/*", "sys/kernel/**/*")
        found = [path for pattern in memory for path in self.path.glob(pattern) if path.is_file()]
        self._at_boot = {path: path.read_bytes() for path in found if path.name != "boot_id"}

    def _make_vectors(self) -> Vectors | None:
        if self.card.driver == "veth":
            return None
        own = Vectors(self, self.build.machine, self.card.driver, self.card.rings)
        return own.install()

    def attempt(self, program: str, *words: str) -> Answer:
        """As Host.attempt."""
        self._note(CALLS, " ".join((program, *words)))
        double: Any = {"ethtool": self.card, "ip": self.routes, "mount": self.tmpfs}.get(program)
        answer: Answer = (double or self.systemd).attempt(program, *words)
        return answer

    def poke(self, name: str, text: str) -> None:
        """As the kernel, once a file has been written."""
        self._note(FILES, name)
        pair = {"dirty_ratio": "dirty_bytes", "dirty_bytes": "dirty_ratio"}
        base = name.rpartition("/")[2]
        if base in pair:
            self.write(f"proc/sys/vm/{pair[base]}", "0\n")

    def _note(self, known: dict[str, str], text: str) -> None:
        self.trace += [kind for pattern, kind in known.items() if re.match(pattern, text)][:1]

    def boot_anew(self, late: bool) -> list[str]:
        """Forget what memory holds, and boot; with ``late`` the interface is up after our hook."""
        self.new_boot_id()
        for path, data in self._at_boot.items():
            path.write_bytes(data)
        for file in sorted(self.path.glob("etc/sysctl.d/*.conf")):
            for key, value in re.findall(r"^([^#\s]\S*) = (.*)$", file.read_text(), re.MULTILINE):
                self.write(f"proc/sys/{key.replace('.', '/')}", f"{value}\n")
                self.poke(key.replace(".", "/"), value)
        self.routes.lines = [DEFAULT]
        self.tmpfs.mpol = "prefer:0"
        self.tmpfs.show()
        self.systemd.boot()
        self.write(FLAGS, "0x1002\n" if late else "0x1003\n")
        self.card = self.build.card()
        self.card.stand_in(self, self.vectors)
        problems = self.boot_hook() if self.hooked else []
        if late:
            self.come_up()
        if self.exists("run/edgetune-late"):
            problems += alone.late(Host(str(self.path)))
        self.systemd.boot()
        return problems

    def change_by_hand(self) -> None:
        """Have what no file keeps: masks, interrupts, flows, a table of RSS, parameters."""
        self.by_hand = True
        steer(self)
        self.write("proc/sys/net/core/somaxconn", "333\n")
        self.write(TABLE, "1024\n")
        if self.vectors:
            for cpu, name in enumerate(self.vectors.of_queues):
                self.vectors.allow(name, str(cpu % self.build.machine.count))
        if self.card.rss.entries and self.card.rings > 1:
            self.card.rss.change(["weight", "2", "1"], self.card.rings)

    def come_up(self) -> None:
        """Bring the interface up: its driver asks for interrupts, and chooses masks."""
        self.write(FLAGS, "0x1003\n")
        if self.vectors:
            self.vectors.request()
        for mask in self.path.glob(f"{QUEUES}/tx-*/xps_cpus"):
            mask.write_text("0\n")

    @property
    def hooked(self) -> bool:
        """Whether init runs our hook."""
        return self.exists("etc/systemd/system/edgetune.service") or bool(self.hook_files())

    def whole(self) -> dict[str, Any]:
        """All that a restore has to bring back; interrupts by name, as their numbers change."""
        tree = {name: was for name, was in self.tree().items() if not re.match(PASSING, name)}
        card = {
            name: dict(getattr(self.card, name))
            for name in ("channels", "ring", "coalesce", "requested")
        }
        return {
            **tree,
            **{f"card {name}": own for name, own in card.items()},
            "rss": self.card.rss.state,
            "interrupts": self.vectors.allowed() if self.vectors else {},
            "routes": [Route(line) for line in self.routes.lines],
            "nginx": (self.systemd.policy, self.systemd.mask),
        }


PASSING = r"proc/irq|proc/interrupts|.*/msi_irqs|.*/boot_id|" + FLAGS
CALLS = {
    r"systemctl (--no-block )?(start|stop|enable|disable) ": "unit",
    "ethtool -L ": "nic.channels",
    "ethtool -G ": "nic.ring",
    "ethtool -[XN] ": "nic.rss",
    "ethtool -K ": "nic.features",
    "ethtool -C ": "nic.coalesce",
    "ip .* change ": "route.metric",
    "mount ": "memory.tmpfs_policy",
}
FILES = {
    "/proc/irq/": "nic.irq_affinity",
    ".*/xps_cpus": "nic.xps",
    ".*/rps_cpus": "nic.rps",
    ".*/rps_flow_cnt": "nic.rfs",
    ".*/transparent_hugepage/": "memory.thp",
    ".*/watermark_": "memory.watermarks",
    ".*migration_cost": "sched.migration_cost",
    # Two kinds write these.
    "/proc/sys/(?!.*(min_free_kbytes|rps_sock_flow_entries))": "sysctl",
}
"""What is called, and which files are written, for each kind."""


@contextmanager
def any_host(path: Path, build: Build) -> Iterator[AnyHost]:
    """A host for the time of a test, whose disk is as durable as it has to be."""
    with pytest.MonkeyPatch.context() as patch:
        host = instead(patch, AnyHost(path, build))
        poke = Host.poke

        def poke_and_tell(own: Host, name: str, text: str) -> None:
            poke(own, name, text)
            host.poke(name, text)

        patch.setattr(Host, "poke", poke_and_tell)
        patch.setattr(Host, "detach", lambda *_: None)
        patch.setattr("os.fsync", lambda _: None)
        patch.setattr(standby, "own_source", lambda: b"# the agent\n")
        patch.setattr(alone, "LATE_WAIT", 0.0)
        patch.setattr(memory_watermarks, "PAUSE", 0)
        patch.setattr(nic_irq_affinity, "PATIENCE", 0)
        yield host


def builds() -> st.SearchStrategy[Build]:
    """Hosts of every make."""
    return st.builds(
        Build,
        st.sampled_from(MAKES),
        st.sampled_from(MACHINES),
        st.sampled_from(["systemd", "sysv"]),
        st.booleans(),
        st.booleans(),
    )


def tunings(build: Build) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Settings of any kinds in any order, few or many, most of which the host can take."""
    of_kind = {kind: _settings(kind, build) for kind in KINDS}
    every = [one for found in of_kind.values() for one in found]
    # They reset each other.
    of_card = [one for kind in KINDS if kind.startswith("nic.") for one in of_kind[kind]]
    chosen = st.sampled_from([every, of_card]).flatmap(
        lambda known: st.lists(st.sampled_from(known), min_size=1, max_size=9, unique=True)
    )
    return chosen.flatmap(lambda own: st.tuples(*own)).map(_once)


def _once(drawn: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
    return list({own["id"]: own for own in drawn}.values())


def _settings(kind: str, build: Build) -> list[st.SearchStrategy[dict[str, Any]]]:
    """Those of one kind, a strategy for each target."""
    card, cpus = build.card(), _cpus(build.machine)
    policies = {
        "nic.irq_affinity": st.sampled_from(POLICIES) | cpus,
        "nic.xps": st.just("per_queue") | cpus,
        "nic.rps": st.just("others") | cpus,
    }
    if kind in policies:
        return [st.builds(setting, st.just(kind), st.just(ETH0), policies[kind])]
    if kind in ("nic.channels", "nic.ring", "nic.rss", "nic.features", "nic.coalesce"):
        return [_of_card(kind, card)]
    return OTHERS[kind]


def _cpus(machine: Machine) -> st.SearchStrategy[str]:
    some = st.sets(st.sampled_from(sorted(machine.online)), min_size=1, max_size=6)
    # What a host has that was changed by hand.
    return st.just("0-1") | some.map(format_cpus)


def _of_card(kind: str, card: Card) -> st.SearchStrategy[dict[str, Any]]:
    """What its driver knows, and now and then what it does not."""
    switch, size = st.sampled_from(("on", "off")), st.integers(2, 1000)
    other_key = st.just(card.rss.key[:-2] + "ee")
    both = {name for name in card.most_channels if name != "combined"}
    named = set(card.most_channels) - both or both
    parts: dict[str, Any] = {
        "nic.channels": {
            name: st.integers(1, most) for name, most in card.most_channels.items() if name in named
        },
        "nic.ring": {side: st.integers(64, most) for side, most in card.most_ring.items()},
        "nic.rss": {
            "equal": st.integers(1, max(min(card.rings, card.rss.reach), 1)),
            "hfunc": st.sampled_from(card.rss.functions),
            # Nothing tells of a driver that refuses another one, as bnxt does.
            **({} if card.rss.key_fixed or not card.rss.key else {"key": other_key}),
            **{flow: st.sampled_from(("sd", "sdfn")) for flow in card.rss.free},
        },
        "nic.features": {
            name: switch
            for name in (*agent_nic.SINGLE, "tcp-segmentation-offload")
            if name not in card.fixed or name == "ntuple-filters"
        },
        "nic.coalesce": {
            name: switch if part in ("on", "off") else size for name, part in card.coalesce.items()
        },
    }
    known = parts[kind] or {"rx-usecs" if kind == "nic.coalesce" else "rx": st.just(8)}
    value = st.fixed_dictionaries({}, optional=known).filter(bool)
    return value.flatmap(lambda own: _bounded(kind, ETH0, own))


def _bounded(kind: str, target: dict[str, str], value: Any) -> st.SearchStrategy[dict[str, Any]]:
    """With ``only`` where a value is made of numbers."""
    parts = value.values() if isinstance(value, dict) else value.split()
    numbers = KINDS[kind].ordered and all(str(part).isdigit() for part in parts)
    only = st.sampled_from([None, "raise", "lower"] if numbers else [None])
    return only.map(lambda word: setting(kind, target, value, only=word))


def _any_of(kind: str, target: dict[str, str], *values: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.sampled_from(values).flatmap(lambda value: _bounded(kind, target, value))


def _of_nginx(own: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return own.map(lambda one: {**one, "restart": "nginx"})


def _property(name: str, *values: str) -> st.SearchStrategy[dict[str, Any]]:
    return _of_nginx(_any_of("service.property", {**NGINX, "property": name}, *values))


OFF, ON = {"active": "off", "enabled": "off"}, {"active": "on", "enabled": "on"}
ROUTE = {"family": "inet", "route": "default"}
OTHERS: dict[str, list[st.SearchStrategy[dict[str, Any]]]] = {
    "unit": [st.sampled_from([OFF, OFF, ON]).map(lambda own: unit("irqbalance.service", **own))],
    "nic.rfs": [_any_of("nic.rfs", ETH0, "0", "3", "4096", "30000", "32768")],
    "route.metric": [
        _any_of(
            "route.metric",
            ROUTE,
            {"initcwnd": 30},
            {"initcwnd": 20, "initrwnd": 40},
            {"congctl": "bbr", "quickack": 1},
            {"congctl": "vegas"},
        )
    ],
    "memory.thp": [
        st.sampled_from(["always", "never"]).map(thp),
        st.sampled_from(["always", "defer"]).map(lambda word: thp(word, "defrag")),
    ],
    "memory.watermarks": [
        _any_of("memory.watermarks", {"parameter": name}, *values)
        for name, values in {
            "min_free_kbytes": ("30000", "1048576", "99999999"),
            "watermark_scale_factor": ("5", "40"),
            "watermark_boost_factor": ("0", "20000"),
        }.items()
    ],
    "memory.tmpfs_policy": [
        _any_of("memory.tmpfs_policy", {"mount": CACHE}, "interleave", "bind:0", "bind:1", "local")
    ],
    "sched.migration_cost": [_any_of("sched.migration_cost", {}, "5000", "5000000")],
    "sysctl": [
        _any_of("sysctl", {"key": key}, *values)
        for key, values in {
            "net.core.somaxconn": ("64", "4096"),
            "net.ipv4.tcp_rmem": ("4096 65536 16777216", "8192"),
            "vm.swappiness": ("1", "100"),
            "vm.dirty_ratio": ("10",),
            "vm.dirty_bytes": ("100000000",),
            "vm.min_free_kbytes": ("70000",),
            "net.core.rps_sock_flow_entries": ("65536",),
        }.items()
    ],
    "file": [
        _any_of("file", {"path": path}, "worker_processes 4;\n", "# nothing\n\n")
        for path in (OWN_FILE, "/etc/nginx/conf.d/deep/tuned.conf")
    ],
    "service.property": [
        _property("LimitNOFILE", "512", "65536"),
        _property("CPUAffinity", "1-3", "0"),
        _property("Nice", "-5"),
    ],
    "memory.numa_policy": [
        _of_nginx(_any_of("memory.numa_policy", NGINX, "interleave", "bind:1", "local"))
    ],
    "cpu.service_affinity": [
        _of_nginx(_any_of("cpu.service_affinity", NGINX, "off_nic_irqs", "off_nic_cores"))
    ],
}
