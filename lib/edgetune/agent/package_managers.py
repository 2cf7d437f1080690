# SPDX-License-Identifier: Apache-2.0
"""What installs kernels: a class here for each package manager."""

import fcntl
import os
import re
import struct
from typing import List, NamedTuple, Optional, Tuple

from edgetune.agent.host import Host
from edgetune.agent.protocol import Failed, Unsupported


class Package(NamedTuple):
    """A package by its name, at one version."""

    package: str
    version: str


class PackageManager:
    """Which package holds a kernel, and how one gets there."""

    program = ""
    lists: Tuple[str, ...] = ()
    """What tells the files of a package that is installed."""
    kernel = ""
    """Which of them is a kernel, with its release."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def spelt(self, package: Package) -> str:
        """As the programs take it; of an installed one."""
        return package.package

    def of_release(self, release: str) -> Optional[Package]:
        """The package that holds a kernel, as it is installed; None where none does."""
        raise NotImplementedError

    def running_version(self) -> str:
        """That of the running kernel, whose package may have been replaced; "" if nobody tells."""
        return ""

    def has(self, package: Package) -> bool:
        """Whether it is installed as a whole."""
        raise NotImplementedError

    def release_of(self, package: Package) -> str:
        """The release of the kernel in an installed package; Failed where it holds none."""
        found = re.findall(self.kernel, self.host.run(*self.lists, self.spelt(package)))
        if len(found) != 1:
            raise Failed(f"{package.package} holds no kernel: name the package that does")
        return str(found[0])

    def overwritten(self, package: Package) -> str:
        """The release of the kernel that installing a package would overwrite; "" for none."""
        return ""

    def probe(self, package: Package) -> None:
        """Unsupported where a package cannot be installed now; installs nothing."""
        raise NotImplementedError

    def install(self, package: Package) -> None:
        """Install it and keep every kernel that is there; Failed if that does not work."""
        raise NotImplementedError


def package_manager(host: Host) -> PackageManager:
    """That of a host; Unsupported where it is none that we know."""
    for kind in (Dpkg, Rpm):
        if host.program(kind.program):
            return kind(host)
    raise Unsupported("it has neither dpkg nor rpm")


LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock")
_SIMULATE = ("-o", "Debug::NoLocking=true", "--simulate")
_LOCK_WAIT = ("-o", "DPkg::Lock::Timeout=60")
_INSTALL = ("install", "--yes", "--no-remove", "--no-install-recommends", "--allow-downgrades")
_KEEP = ("-o", "Dpkg::Options::=--force-confold")


class Dpkg(PackageManager):
    """A package holds one kernel, and one version of it is installed at a time."""

    program = "dpkg-query"
    lists = ("dpkg-query", "-L")
    kernel = r"(?m)^/boot/vmlinuz-(\S+)$"

    def of_release(self, release: str) -> Optional[Package]:
        """Where packages divert its file, the one whose file was diverted: it has the modules."""
        status, output, _ = self.host.attempt("dpkg-query", "-S", f"/boot/vmlinuz-{release}")
        for name in _owners(output) if status == 0 else ():
            version = self._installed(name)
            if version:
                return Package(name, version)
        return None

    def running_version(self) -> str:
        match = re.search(r" Debian ([0-9]\S*) \(", self.host.text("/proc/version"))
        return match.group(1) if match else ""

    def has(self, package: Package) -> bool:
        return self._installed(package.package) == package.version

    def _installed(self, name: str) -> Optional[str]:
        form = "${db:Status-Status} ${Version}"
        status, output, _ = self.host.attempt("dpkg-query", "-W", "-f", form, name)
        word, _, version = output.strip().partition(" ")
        return version if status == 0 and word == "installed" else None

    def overwritten(self, package: Package) -> str:
        there = self._installed(package.package)
        return self.release_of(package) if there and there != package.version else ""

    def probe(self, package: Package) -> None:
        for lock in LOCKS:
            if self._is_locked(lock):
                raise Unsupported(f"another program installs packages here: {lock} is locked")
        form = "${db:Status-Want}"
        wanted = self.host.attempt("dpkg-query", "-W", "-f", form, package.package)[1]
        if wanted.strip() == "hold":
            raise Unsupported(f"{package.package} is on hold: apt-mark unhold lets it go")
        command = [*_SIMULATE, *_INSTALL, f"{package.package}={package.version}"]
        status, output, complaint = self.host.attempt("apt-get", *command)
        if status != 0:
            lines = [line for line in complaint.splitlines() if line.startswith("E:")]
            why = lines[0][2:].strip() if lines else f"apt-get ended with {status}"
            raise Unsupported(f"{package.package}={package.version} cannot be installed: {why}")

    def _is_locked(self, file: str) -> bool:
        """Whether some process holds it; asking takes no lock."""
        try:
            descriptor = os.open(self.host.real(file), os.O_RDONLY)
        except OSError:
            return False
        try:
            # struct flock: type, whence, start, length, process.
            asked = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, asked)
            return bool(struct.unpack("hhqqi", answer)[0] != fcntl.F_UNLCK)
        finally:
            os.close(descriptor)

    def install(self, package: Package) -> None:
        spelt = f"{package.package}={package.version}"
        self.host.run("apt-get", *_LOCK_WAIT, *_KEEP, *_INSTALL, spelt)


def _owners(found: str) -> List[str]:
    """The packages that ``dpkg-query -S`` names, those last that divert files of the others."""
    names: List[str] = []
    diverters: List[str] = []
    for line in found.splitlines():
        diversion = re.match("(?:local diversion|diversion by (\\S+)) (?:from|to): ", line)
        if diversion:
            diverters.append(diversion.group(1) or "")
        else:
            owners = line.rpartition(": ")[0].split(", ")
            names += [owner.partition(":")[0] for owner in owners if owner]
    return sorted(names, key=lambda name: name in diverters)


_FORM = "%{NAME} %{VERSION}-%{RELEASE}\\n"


class Rpm(PackageManager):
    """Kernels of several versions are installed side by side."""

    program = "rpm"
    lists = ("rpm", "-q", "-l")
    kernel = r"(?m)^/(?:usr/)?lib/modules/([^/\s]+)/vmlinuz$"

    def spelt(self, package: Package) -> str:
        return f"{package.package}-{package.version}"

    def of_release(self, release: str) -> Optional[Package]:
        # That of /boot is a copy which no package has as its own.
        file = f"/lib/modules/{release}/vmlinuz"
        status, output, _ = self.host.attempt("rpm", "-q", "--qf", _FORM, "-f", file)
        words = output.split()
        return Package(*words) if status == 0 and len(words) == 2 else None

    def has(self, package: Package) -> bool:
        return self.host.attempt("rpm", "-q", self.spelt(package))[0] == 0

    def probe(self, package: Package) -> None:
        spelt = self.spelt(package)
        status, output, complaint = self.host.attempt("dnf", "-q", "repoquery", spelt)
        if status != 0 or not output.strip():
            lines = complaint.strip().splitlines() or ["no repository has it"]
            raise Unsupported(f"{spelt} cannot be installed: {lines[0]}")

    def install(self, package: Package) -> None:
        # By itself dnf removes the oldest of more than three kernels.
        limit = "--setopt=installonly_limit=0"
        self.host.run("dnf", "install", "-y", limit, self.spelt(package))
