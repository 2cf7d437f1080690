# SPDX-License-Identifier: Apache-2.0
"""The kernel that a host runs, as the package that holds it."""

import os
import struct
from typing import Dict, Sequence, Union

from edgetune.agent.host import Host
from edgetune.agent.kinds import texts
from edgetune.agent.kinds.tried_by_boot import REBOOT_FIRST, TriedByBoot
from edgetune.agent.package_managers import Package, PackageManager, package_manager
from edgetune.agent.protocol import Failed, Unsupported, or_none
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.kernel_package import KIND
from edgetune.agent.vocabulary.values import Target, Value, parts

SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
BOOT = "/boot"
ROOM = 1.25
"""How much more than those of the running kernel the files of a new one may take."""
ROOM_LEFT = 16 << 20
"""Bytes that stay free."""


class KernelPackage(TriedByBoot):
    """The package of the kernel that runs, and of the one that the next boot is of."""

    kind = KIND

    @property
    def packages(self) -> PackageManager:
        """Unsupported where the host has none that we know."""
        return package_manager(self.host)

    def runtime(self, target: Target) -> Value:
        package = self._package_of(self.running)
        version = self.packages.running_version() or package.version
        return _value(package._replace(version=version))

    def persistent(self, target: Target) -> Value:
        return _value(self._package_of(self.loader.next().release))

    def _package_of(self, release: str) -> Package:
        package = self.packages.of_release(release)
        if package is None:
            raise Unsupported(f"no package holds the kernel {release}")
        return package

    def probe(self, setting: Setting) -> None:
        """Unsupported where it cannot be installed, or would leave nothing to fall back to."""
        super().probe(setting)
        # What the entry of the running kernel boots has to be what runs.
        there, version = self._package_of(self.running), self.packages.running_version()
        if version not in ("", there.version):
            raise Unsupported(
                f"{there.package} is {there.version} on the disk, and {version} runs: "
                f"{REBOOT_FIRST}"
            )
        package = _package(setting.value)
        if self.packages.has(package):
            self._refuse_unsigned(self.packages.release_of(package))
            return
        self.loader.probe_install()
        # The kernel that a host falls back to has to stay as it is.
        release = self.packages.overwritten(package)
        kept = {self.loader.default().release: "is the default", self.running: "runs"}
        if release in kept:
            raise Unsupported(
                f"{package.package} would overwrite the kernel {release}, which {kept[release]}: "
                "the host could not fall back to it"
            )
        self._refuse_full()
        self.packages.probe(package)

    def _refuse_full(self) -> None:
        """A package leaves its files in /boot; some boot loaders have copies of their own."""
        loader = self.loader
        try:
            booted = loader.files(loader.default_id())
        except Unsupported as why:
            raise Unsupported(f"nobody can tell how much room a kernel needs: {why}") from None
        running = [f"{BOOT}/{name}" for name in self.host.names(BOOT) if self.running in name]
        taken = {BOOT: running} if running else {}
        taken[loader.place] = taken.get(loader.place, []) + booted
        for place, files in taken.items():
            self._refuse_full_at(place, files)

    def _refuse_full_at(self, place: str, files: Sequence[str]) -> None:
        found = (os.stat(self.host.path(file)) for file in files)
        # One file may have several names.
        taken = {(status.st_dev, status.st_ino): status.st_size for status in found}
        needed = int(sum(taken.values()) * ROOM) + ROOM_LEFT
        disk = os.statvfs(self.host.path(place))
        free = disk.f_bavail * disk.f_frsize
        if free < needed:
            raise Unsupported(
                f"{place} has {free >> 20} MiB left, and another kernel may need {needed >> 20} MiB"
            )

    def _refuse_unsigned(self, release: str) -> None:
        image = f"/boot/vmlinuz-{release}"
        if secure_boot(self.host) and not is_signed(self.host.read(image)):
            raise Unsupported(f"Secure Boot is on, and {image} is not signed: it would not boot")

    def snapshot(self, target: Target) -> object:
        return {"default": self.loader.default_id(), "stored": self.loader.stored_default()}

    def apply(self, target: Target, value: Value) -> None:
        """Install it where it is not there, and have the next boot try it."""
        package, default = _package(value), self.loader.stored_default()
        if not self.packages.has(package):
            self.packages.install(package)
            if not self.packages.has(package):
                raise Failed(f"{package.package} {package.version} was not installed")
        if self.loader.stored_default() != default:
            self.loader.set_default(default)
        release = self.packages.release_of(package)
        self._refuse_unsigned(release)
        entry = self.loader.entry_of(release)
        self.boot_once(entry, entry.words)

    def commit(self, setting: Setting) -> None:
        release = self.packages.release_of(_package(setting.value))
        self.loader.set_default(self.loader.entry_of(release).id)
        self.loader.forget_trial()

    def restore(self, target: Target, snapshot: object) -> None:
        self.loader.forget_trial()
        was = texts(snapshot)
        default = was["default"]
        # Somebody may have removed the old kernel since: the newer one is better than none.
        self.loader.entry(default)
        # One that is none any more has to go all the same.
        if or_none(self.loader.default_id) != default:
            # Journals did not always say how it was stored.
            self.loader.set_default(was.get("stored", default))


def _package(value: Value) -> Package:
    named = parts(value)
    return Package(str(named["package"]), str(named["version"]))


def _value(package: Package) -> Dict[str, Union[int, str]]:
    return dict(package._asdict())


def secure_boot(host: Host) -> bool:
    """Whether the firmware boots only what is signed (UEFI, after 4 bytes of attributes)."""
    try:
        return host.read(SECURE_BOOT)[4:5] == b"\1"
    except OSError:
        return False


def is_signed(image: bytes) -> bool:
    """Whether an EFI image has a table of certificates (PE format, the fifth data directory)."""
    try:
        header = struct.unpack_from("<I", image, 0x3C)[0]
        optional = header + 24
        is_64 = struct.unpack_from("<H", image, optional)[0] == 0x20B
        size: int = struct.unpack_from("<I", image, optional + (112 if is_64 else 96) + 36)[0]
        return image[header : header + 4] == b"PE\0\0" and size > 0
    except struct.error:
        return False
