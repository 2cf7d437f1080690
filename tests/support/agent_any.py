# SPDX-License-Identifier: Apache-2.0
"""Hosts of every make, and every setting that they can be asked for.

An `AnyHost` has a card with interrupts, CPUs, routes, a tmpfs, nginx and irqbalance, all doubles in
this process, so that a tuning of any kinds can be carried out on it, and it can boot.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from edgetune.agent import unattended
from edgetune.agent.host import Host
from edgetune.agent.kinds import memory_watermarks, nic_irq_affinity
from edgetune.agent.kinds.route_metric import Route
from edgetune.agent.vocabulary.kinds import KINDS
from edgetune.agent.vocabulary.values import format_cpus
from tests.support.agent_cpus import Vectors, run_nginx
from tests.support.agent_nic import QUEUES, TABLE, NicHost, steer
from tests.support.agent_programs import DEFAULT, Answer, Routes, Systemd, Tmpfs, instead
from tests.support.boot_loaders import OLD
from tests.support.boot_loaders.grub import GrubDouble
from tests.support.kernels import Apt
from tests.support.trials import CACHE, MACHINES, MAKES, Build, trials

FLAGS = "sys/class/net/eth0/flags"
OWN_FILE = "/etc/nginx/nginx.conf"
TRIALS = trials()


class AnyHost(NicHost):
    """One host. ``trace`` has the kind of each change that was made, as its doubles saw it."""

    def __init__(self, path: Path, build: Build) -> None:
        super().__init__(path, build.init)
        self.build, self.by_hand = build, False
        self.trace: list[str] = []
        self.calls: list[str] = []
        self.poked: list[str] = []
        build.machine.install(self)
        self.write("proc/meminfo", f"MemTotal: {build.machine.node_kb} kB\nSwapTotal: 0 kB\n")
        files = [pair for own in TRIALS.values() for pair in own.files(build).items()]
        for name, text in files:
            self.write(name, text)
        self.write(OWN_FILE[1:], "worker_processes auto;\n").chmod(0o640)
        self.write(FLAGS, "0x1003\n")
        run_nginx(self)
        balancer = ("active", "enabled") if build.balanced else ("inactive", "disabled")
        self.make_unit("irqbalance.service", *balancer)
        self.systemd = Systemd(self, cpus=format_cpus(build.machine.online))
        self.systemd.processes = {"irqbalance.service": "irqbalance"}
        self.systemd.show_processes()
        self.routes = Routes(self, DEFAULT)
        self.boot_loader = GrubDouble(self)
        self.packages = Apt(self, self.boot_loader)
        for program in self.packages.programs:
            self.write(f"usr/local/sbin/{program}", "#!/bin/false\n").chmod(0o755)
        self.write("proc/sys/kernel/osrelease", f"{OLD}\n")
        self.write("proc/cmdline", f"{self.boot_loader.boot()[1]}\n")
        self.tmpfs = Tmpfs(self, "prefer:0", CACHE)
        self.card = build.card()
        self.vectors = self._make_vectors()
        self.card.stand_in(self, self.vectors)
        memory = ("proc/sys/*/**/*", "sys/kernel/**/*")
        found = [path for pattern in memory for path in self.path.glob(pattern) if path.is_file()]
        found += [self.path / name for name, _ in files if name.startswith(("proc/", "sys/"))]
        self._at_boot = {path: path.read_bytes() for path in found if path.name != "boot_id"}

    def _make_vectors(self) -> Vectors | None:
        if self.card.driver == "veth":
            return None
        own = Vectors(self, self.build.machine, self.card.driver, self.card.rings)
        return own.install()

    def attempt(self, program: str, *words: str) -> Answer:
        """As Host.attempt."""
        self.calls.append(" ".join((program, *words)))
        self._note("call", self.calls[-1])
        doubles: dict[str, Any] = {"ethtool": self.card, "ip": self.routes, "mount": self.tmpfs}
        doubles.update(dict.fromkeys(self.boot_loader.programs, self.boot_loader))
        doubles.update(dict.fromkeys(self.packages.programs, self.packages))
        double = doubles.get(program)
        answer: Answer = (double or self.systemd).attempt(program, *words)
        return answer

    def poke(self, name: str, text: str) -> None:
        """As the kernel, once a file has been written."""
        self.poked.append(name)
        self._note("file", name)
        pair = {"dirty_ratio": "dirty_bytes", "dirty_bytes": "dirty_ratio"}
        base = name.rpartition("/")[2]
        if base in pair:
            self.write(f"proc/sys/vm/{pair[base]}", "0\n")

    def _note(self, way: str, text: str) -> None:
        patterns = {name: getattr(own, way) for name, own in TRIALS.items()}
        self.trace += [name for name, own in patterns.items() if own and re.match(own, text)][:1]

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
            problems += unattended.late(Host(str(self.path)))
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
        card = self.card.state
        return {
            **tree,
            "rss": card.pop("rss"),
            **{f"card {name}": own for name, own in card.items()},
            "interrupts": self.vectors.allowed() if self.vectors else {},
            "routes": [Route(line) for line in self.routes.lines],
            "nginx": (self.systemd.policy, self.systemd.mask),
        }


PASSING = r"proc/irq|proc/interrupts|.*/msi_irqs|.*/boot_id|" + FLAGS


@contextmanager
def any_host(path: Path, build: Build) -> Iterator[AnyHost]:
    """A host for the time of a test, whose disk is as durable as it has to be."""
    with pytest.MonkeyPatch.context() as patch:
        host = instead(patch, AnyHost(path, build))
        poke = Host.write_attribute

        def poke_and_tell(own: Host, name: str, text: str) -> None:
            poke(own, name, text)
            host.poke(name, text)

        patch.setattr(Host, "write_attribute", poke_and_tell)
        patch.setattr(Host, "detach", lambda *_: None)
        patch.setattr("os.fsync", lambda _: None)
        patch.setattr("edgetune.agent.bundle.own_source", lambda: b"# the agent\n")
        patch.setattr(unattended, "LATE_WAIT", 0.0)
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
    # What a boot tries has a course of its own (test_lib_agent_kernels).
    here = {
        name: own for name, own in TRIALS.items() if not own.asks and "linux" in KINDS[name].systems
    }
    of_kind = {name: own.settings(build) for name, own in here.items()}
    every = [one for found in of_kind.values() for one in found]
    # They reset each other.
    of_card = [one for kind in here if kind.startswith("nic.") for one in of_kind[kind]]
    chosen = st.sampled_from([every, of_card]).flatmap(
        lambda known: st.lists(st.sampled_from(known), min_size=1, max_size=9, unique=True)
    )
    return chosen.flatmap(lambda own: st.tuples(*own)).map(_once)


def _once(drawn: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
    return list({own["id"]: own for own in drawn}.values())
