# SPDX-License-Identifier: Apache-2.0
"""Hosts that boot one of several kernels: a double of a boot loader, and one that installs kernels.

Neither shares code with the agent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgetune.agent.host import Host
from edgetune.agent.unattended import revert
from tests.support import boot_loaders
from tests.support.agent_programs import Answer, instead
from tests.support.agent_root import NearRoot, setting
from tests.support.boot_loaders import NEW, OLD, Double

GRACE = {"confirm_within": 60, "grace_boots": 1}
"""What a request says of a change that a boot tries."""


class Apt:
    """dpkg and apt-get: what is installed, what a repository has, and what holds it up."""

    programs = ("dpkg-query", "apt-get")

    def __init__(self, root: NearRoot, loader: Double) -> None:
        self.root, self.loader = root, loader
        self.installed = {"linux-image-6.1.0-40-amd64": "6.1.153-1", "linux-image-amd64": "6.1.1"}
        self.offered = {("linux-image-6.1.0-41-amd64", "6.1.158-1")}
        self.held: set[str] = set()
        self.breaks = False
        self.after_install = ""
        self.calls: list[str] = []
        self.running("6.1.0-40-amd64", "6.1.153-1")

    def running(self, release: str, version: str) -> None:
        text = f"Linux version {release} (debian-kernel@lists.debian.org) #1 SMP"
        self.root.write("proc/version", f"{text} Debian {version} (2025-10-12)\n")

    def booted(self, release: str) -> None:
        self.running(release, self.installed.get(f"linux-image-{release}", "?"))

    @property
    def old(self) -> dict[str, str]:
        return {"package": "linux-image-6.1.0-40-amd64", "version": "6.1.153-1"}

    @property
    def new(self) -> dict[str, str]:
        return {"package": "linux-image-6.1.0-41-amd64", "version": "6.1.158-1"}

    def attempt(self, program: str, *words: str) -> Answer:
        self.calls.append(" ".join((program, *words)))
        if program == "dpkg-query":
            return self._query(*words)
        name, version = words[-1].split("=")
        if (name, version) not in self.offered:
            return 100, "", f"E: Version '{version}' for '{name}' was not found\n"
        if "--simulate" not in words:
            if self.breaks:
                return 100, "", "E: Sub-process /usr/bin/dpkg returned an error code (1)\n"
            assert "--no-remove" in words and "--yes" in words, words
            self.installed[name] = version
            self.loader.add(name[len("linux-image-") :])
            if self.after_install:
                self.loader.attempt(*self.after_install.split())
        return 0, "", ""

    def put(self) -> None:
        """Have the new kernel."""
        self.installed[self.new["package"]] = self.new["version"]
        self.loader.add(NEW)

    def _query(self, option: str, *words: str) -> Answer:
        name = words[-1]
        if option == "-S":
            own = f"linux-image-{name[len('/boot/vmlinuz-') :]}"
            found = own in self.installed
            return (0, f"{own}: {name}\n", "") if found else (1, "", f"no path found {name}\n")
        if name not in self.installed:
            return 1, "", f"dpkg-query: no packages found matching {name}\n"
        if option == "-L":
            release = name[len("linux-image-") :]
            files = [f"/boot/{file}-{release}\n" for file in ("System.map", "config", "vmlinuz")]
            own = "".join(files) if release[0].isdigit() else ""
            return 0, f"/.\n/boot\n{own}", ""
        if "Want" in words[1]:
            return 0, "hold" if name in self.held else "install", ""
        return 0, f"installed {self.installed[name]}", ""


class Dnf:
    """rpm and dnf, whose kernels stand side by side."""

    programs = ("rpm", "dnf")

    def __init__(self, root: NearRoot, loader: Double) -> None:
        self.root, self.loader = root, loader
        self.installed = {"6.1.0-40-amd64"}
        self.offered = {"6.1.0-41-amd64"}
        self.breaks = False
        self.calls: list[str] = []

    @property
    def old(self) -> dict[str, str]:
        return {"package": "kernel-core", "version": "6.1.0-40-amd64"}

    @property
    def new(self) -> dict[str, str]:
        return {"package": "kernel-core", "version": "6.1.0-41-amd64"}

    def booted(self, release: str) -> None:
        """Nothing but its release tells which one runs."""

    def put(self) -> None:
        """Have the new kernel."""
        self.installed.add(NEW)
        self.loader.add(NEW)

    def attempt(self, program: str, *words: str) -> Answer:
        self.calls.append(" ".join((program, *words)))
        version = words[-1].replace("kernel-core-", "")
        if program == "dnf":
            if version not in self.offered:
                return 0, "", ""
            if "install" in words:
                if self.breaks:
                    return 1, "", "Error: Failed to download packages\n"
                assert "--setopt=installonly_limit=0" in words
                self.installed.add(version)
                self.loader.add(version)
            return 0, f"kernel-core-0:{version}\n", ""
        if "-f" in words:
            release = words[-1].split("/")[3]
            known = release in self.installed
            return (0, f"kernel-core {release}\n", "") if known else (1, "file is not owned\n", "")
        if version not in self.installed:
            return 1, f"package kernel-core-{version} is not installed\n", ""
        return 0, f"/lib/modules/{version}\n/lib/modules/{version}/vmlinuz\n", ""


MANAGERS: dict[str, type[Apt] | type[Dnf]] = {"grub": Apt, "systemd_boot": Apt, "grub_bls": Dnf}


class KernelHost(NearRoot):
    """A host with systemd. ``boots`` counts them, ``asked`` the reboots that it asked for itself.

    ``bad`` names what panics: a release, or a word of the command line.
    """

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(path, "systemd")
        self.loader: Double = boot_loaders.of(name).LOADER(self)
        self.packages = MANAGERS[name](self, self.loader)
        for program in (*self.packages.programs, "systemctl", *self.loader.programs):
            self.write(f"usr/local/sbin/{program}", "#!/bin/false\n").chmod(0o755)
        self.bad = ""
        self.boots = self.asked = 0
        self.write("etc/systemd/system/multi-user.target.wants/x.service", "")
        self._start()

    def attempt(self, program: str, *words: str) -> Answer:
        """As Host.attempt."""
        if program in self.packages.programs:
            return self.packages.attempt(program, *words)
        if program in self.loader.programs:
            return self.loader.attempt(program, *words)
        if words[-1:] == ("reboot",):
            self.asked += 1
        return 0, "active\n" if "is-active" in words else "", ""

    def _start(self) -> None:
        release, line = self.loader.boot()
        self.boots += 1
        if self.bad and self.bad in (release, *line.split()):
            assert "panic=10" in line.split(), "it would stay so"
            self._start()
            return
        self.write("proc/sys/kernel/osrelease", f"{release}\n")
        self.write("proc/cmdline", f"{line}\n")
        self.packages.booted(release)

    def boot_anew(self) -> list[str]:
        """Boot, and let the boot hook run; again as long as it asks for that."""
        problems: list[str] = []
        while True:
            before, self.asked = self.asked, 0
            self._start()
            if self.exists("etc/systemd/system/edgetune.service"):
                problems += self.boot_hook()
            self.asked, again = before + self.asked, self.asked
            if not again:
                return problems
            assert self.boots < 20, "it boots for ever"

    def time_out(self, tuning: str = "t") -> None:
        """Let nobody have confirmed in time: what the revert timer does, and the boot after it."""
        self.let_deadline_pass(tuning)
        before = self.asked
        revert(Host(str(self.path)), tuning)
        if self.asked > before:
            self.boot_anew()

    @property
    def release(self) -> str:
        """Of the kernel that runs."""
        return self.read("proc/sys/kernel/osrelease").strip()

    @property
    def line(self) -> list[str]:
        """The command line that was booted."""
        return self.read("proc/cmdline").split()

    def kernel(self, **value: str) -> dict[str, Any]:
        """The setting of the newer kernel."""
        return setting("kernel.package", {}, value or self.packages.new)

    def stable(self) -> tuple[str, list[str], str]:
        """What three boots lead to, each of which leads to the same."""
        found = []
        for _ in range(3):
            assert self.boot_anew() == []
            found.append((self.release, self.line, self.loader.default))
        assert found[0] == found[1] == found[2]
        return found[0]


def cmdline(text: str, parameter: str = "") -> dict[str, Any]:
    """A setting of one parameter with these words."""
    name = parameter or re.split("[= ]", text)[0]
    return setting("kernel.cmdline", {"parameter": name}, text)


@contextmanager
def kernel_host(path: Path, name: str = "grub") -> Iterator[KernelHost]:
    """A host for the time of a test."""
    host = KernelHost(path, name)
    try:
        with doubles_of(host):
            yield host
    finally:
        host.stop()


@contextmanager
def doubles_of(host: KernelHost) -> Iterator[None]:
    """Let the doubles of a host answer for its programs."""
    with pytest.MonkeyPatch.context() as patch:
        host.patch = patch
        instead(patch, host)
        patch.setattr("os.fsync", lambda _: None)
        patch.setattr("edgetune.agent.bundle.own_source", lambda: b"# the agent\n")
        yield


__all__ = ["GRACE", "NEW", "OLD", "Apt", "KernelHost", "cmdline", "doubles_of", "kernel_host"]
