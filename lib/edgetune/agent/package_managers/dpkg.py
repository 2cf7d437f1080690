# SPDX-License-Identifier: Apache-2.0
"""dpkg and apt."""

import fcntl
import os
import re
import struct
from typing import List, Optional

from edgetune.agent.package_managers.base import Package, PackageManager
from edgetune.agent.protocol import Failed, Unsupported

LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock")
_SIMULATE = ("-o", "Debug::NoLocking=true", "--simulate")
_LOCK_WAIT = ("-o", "DPkg::Lock::Timeout=60")
_INSTALL = ("install", "--yes", "--no-remove", "--no-install-recommends", "--allow-downgrades")
_KEEP = ("-o", "Dpkg::Options::=--force-confold")


class Dpkg(PackageManager):
    """A package holds one kernel, and one version of it is installed at a time."""

    program = "dpkg-query"

    def of_release(self, release: str) -> Optional[Package]:
        """Where packages divert its file, the one whose file was diverted: it has the modules."""
        status, output, _ = self.host.attempt("dpkg-query", "-S", f"/boot/vmlinuz-{release}")
        for name in _owners(output) if status == 0 else ():
            version = self._installed(name)
            if version:
                return Package(name, version)
        return None

    def running_version(self) -> str:
        told = re.search(r" Debian ([0-9]\S*) \(", self.host.text("/proc/version"))
        return told.group(1) if told else ""

    def has(self, package: Package) -> bool:
        return self._installed(package.package) == package.version

    def _installed(self, name: str) -> Optional[str]:
        form = "${db:Status-Status} ${Version}"
        status, output, _ = self.host.attempt("dpkg-query", "-W", "-f", form, name)
        word, _, version = output.strip().partition(" ")
        return version if status == 0 and word == "installed" else None

    def release_of(self, package: Package) -> str:
        listed = self.host.run("dpkg-query", "-L", package.package)
        found = re.findall(r"(?m)^/boot/vmlinuz-(\S+)$", listed)
        if len(found) != 1:
            raise Failed(f"{package.package} holds no kernel: name the package that does")
        return str(found[0])

    def overwritten(self, package: Package) -> str:
        there = self._installed(package.package)
        return self.release_of(package) if there and there != package.version else ""

    def probe(self, package: Package) -> None:
        for lock in LOCKS:
            if self._is_locked(lock):
                raise Unsupported(f"another program installs packages here: {lock} is locked")
        if self._is_held(package.package):
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

    def _is_held(self, name: str) -> bool:
        output = self.host.attempt("dpkg-query", "-W", "-f", "${db:Status-Want}", name)[1]
        return output.strip() == "hold"

    def install(self, package: Package) -> None:
        own = f"{package.package}={package.version}"
        self.host.run("apt-get", *_LOCK_WAIT, *_KEEP, *_INSTALL, own)


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
