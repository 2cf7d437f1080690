# SPDX-License-Identifier: Apache-2.0
"""A host with FreeBSD for the agent, below a directory: the doubles of the simulated lab, asked in
this process.
"""

from __future__ import annotations

import shutil
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgetune.agent.host import Host
from edgetune.agent.unattended import boot
from lab.simulated.freebsd.programs import NAMES, REBOOT_MARK, Answer, Machine, Programs
from tests.support import ROOT
from tests.support.agent_programs import instead
from tests.support.agent_root import NearRoot

IMAGE = ROOT / "lab/simulated/freebsd/image"
LINKS = (IMAGE / "stub/links.txt").read_text(encoding="utf-8")


class FreeBsd(NearRoot):
    """One host. ``calls`` are those of its programs; ``fails`` are told by their first words."""

    def __init__(self, path: Path, release: str = "14.1-RELEASE-p5") -> None:
        self.path, self.python, self.release = path, sys.executable, release
        self.calls: list[str] = []
        self.fails: dict[str, Answer] = {}
        self.machine = Machine(path)
        shutil.copytree(IMAGE, path)
        self.machine.create("new")
        self.tell("kern.osrelease", release)
        for program in NAMES:
            self.write(f"usr/local/sbin/{program}", "#!/bin/false\n").chmod(0o755)
        for directory in ("var/run", "usr/local/etc/rc.d", "var/lib"):
            (path / directory).mkdir(parents=True)
        (path / "tmp").mkdir()
        (path / "tmp").chmod(0o1777)
        self.machine.boot()

    # What the kernel and the pool know.

    @property
    def boot_id(self) -> str:
        return str(self.machine.known("kernel")["boot_id"])

    def new_boot_id(self) -> str:
        self._change("kernel", boot_id=uuid.uuid4().hex)
        return self.boot_id

    def _change(self, what: str, **known: Any) -> None:
        self.machine.keep(what, {**self.machine.known(what), **known})

    def tell(self, name: str, value: str, access: str = "") -> None:
        """Have the kernel tell another value from its next start on."""
        file = self.path / "stub/parameters.txt"
        access = access or self.machine.parameters[name][0]
        file.write_text(f"{file.read_text()}{name} {access} {value}\n")

    def boot_anew(self) -> list[str]:
        """Boot: the problems of our hook come back."""
        self.machine.boot()
        for file in (self.path / "var/run").glob("*"):
            file.unlink()
        self.machine.read_sysctl_conf()
        problems = boot(Host(str(self.path))) if self.hooked else []
        self.machine.read_sysctl_conf()
        return problems

    @property
    def hooked(self) -> bool:
        """Whether rc(8) runs our hook."""
        return (self.path / "usr/local/etc/rc.d/edgetune").exists()

    def make_environment(self, name: str) -> None:
        self._change("pool", names=[*self.machine.known("pool")["names"], name])
        self.machine.create(name)

    def make_fresh_environment(self, name: str, link: str = "") -> Path:
        """Have a boot environment that was made otherwise than from this one, with a link for an
        interpreter, or with none; where a file of it lies."""
        self.make_environment(name)
        interpreter = self.machine.environment(name) / self.python[1:]
        interpreter.unlink()
        if link:
            interpreter.symlink_to(link)
        return interpreter

    def keep_in_environment(self) -> None:
        """Have /var/lib in the boot environment."""
        self._change("pool", apart=False)

    def in_use(self, module: str) -> None:
        self._change("kernel", busy=[*self.machine.known("kernel")["busy"], module])

    def parameter(self, name: str) -> str:
        return str(self.machine.known("kernel")["parameters"][name])

    @property
    def modules(self) -> list[str]:
        return list(self.machine.known("kernel")["modules"])

    @property
    def environments(self) -> dict[str, str]:
        """Which boot environment runs, is the default, and is booted once."""
        pool = self.machine.known("pool")
        return {"once": "", **{name: own for name, own in pool.items() if type(own) is str}}

    @property
    def in_kernel(self) -> tuple[Any, ...]:
        """What settings of the tests change there, and which boot environment is which."""
        names = ("net.inet.tcp.functions_default", "kern.ipc.soacceptqueue", "hw.ix.rxd")
        return (*map(self.parameter, names), "tcp_rack" in self.modules, self.environments)

    def settled(self) -> dict[str, Any]:
        """All but what the next agent that comes by removes: an idle hook, and empty directories.

        Also a draft of the hook, which rc(8) does not look at: its name begins with a dot.
        """
        own = {name: was for name, was in self.tree().items() if was[1] is not None}
        return {name: was for name, was in own.items() if "rc.d/" not in name}

    # Programs.

    def attempt(self, program: str, *words: str) -> Answer:
        """As Host.attempt."""
        call = " ".join((program, *words))
        self.calls.append(call)
        for first, answer in self.fails.items():
            if call.startswith(first):
                return answer
        return Programs(self.machine).answer(program, *words)

    @property
    def reboots(self) -> bool:
        """Whether it was told to, since it was last asked."""
        told = (self.path / REBOOT_MARK).exists()
        (self.path / REBOOT_MARK).unlink(missing_ok=True)
        return told


RELEASES = ("13.3-RELEASE-p7", "14.1-RELEASE-p5")


@contextmanager
def freebsd_host(path: Path, release: str = RELEASES[1]) -> Iterator[FreeBsd]:
    """A host for the time of a test, whose disk is as durable as it has to be."""
    with pytest.MonkeyPatch.context() as patch:
        host = instead(patch, FreeBsd(path, release))
        patch.setattr(Host, "detach", lambda *_: None)
        yield host
