# SPDX-License-Identifier: Apache-2.0
"""Moves upon hosts that boot one of several kernels."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgetune.agent import unattended
from edgetune.agent.boot_loaders import boot_loader
from edgetune.agent.host import Host
from edgetune.agent.kinds.kernel_package import SECURE_BOOT
from edgetune.agent.protocol import Failed
from edgetune.agent.vocabulary.kinds.kernel_cmdline import FIRST_BOOT
from tests.support.kernels import GRACE, NEW, OLD
from tests.support.machine_moves import Moves


class OnKernels(Moves):
    """Moves upon a host that boots one of several kernels; OLD and NEW are their releases."""

    def __init__(self, host: Any, patch: pytest.MonkeyPatch) -> None:
        super().__init__(host, patch)
        self._names.update(OLD=OLD, NEW=NEW)
        self._stable: list[Any] = []

    def whole(self) -> dict[str, Any]:
        """All but what another kernel tells."""
        return {name: own for name, own in super().whole().items() if "proc/" not in name}

    def tries(self, told: dict[str, Any] | None) -> None:
        """Apply, boot, confirm."""
        self.move["with"] = GRACE
        self.apply(told)
        assert self.result["changed"] and self.result["state"] == "provisional", self.where
        self.boot(None)
        self.confirm(True)

    def stable(self, expected: dict[str, str] | str) -> None:
        """What each of three boots leads to; or the same as the first time."""
        self._stable.append(self.host.stable())
        release, line, _ = self._stable[-1]
        if isinstance(expected, str):
            assert self._stable[-1] == self._stable[0], f"{self.where}: {self._stable[-1]}"
            return
        assert release == expected.get("release", release), f"{self.where}: {release}"
        assert {*expected.get("has", "").split()} <= {*line}, f"{self.where}: {line}"
        assert not {*expected.get("lacks", "").split()} & {*line}, f"{self.where}: {line}"

    def falls_back(self, asked: int) -> None:
        """By itself, after so many reboots that the host asked for."""
        host = self.host
        seen = (host.release, host.state(), host.asked, host.loader.once)
        assert seen == (OLD, "none", asked, ""), f"{self.where}: {seen}"
        self.lacks("etc/systemd/system/edgetune.service")
        self.confirm(False)
        self.stable("as before")
        self.restore(False)

    def default(self, release: str) -> None:
        """The entry of a release is the one that is booted."""
        loader = self.host.loader
        self._compare("default", loader.default, loader.id_of(release))

    def boots_by_default(self, release: str) -> None:
        own = boot_loader(Host(str(self.host.path)))
        own.set_default(self.host.loader.id_of(release))

    def packages(self, expected: dict[str, str]) -> None:
        """Values of the first row are those of packages."""
        for name, which in expected.items():
            own = getattr(self.host.packages, which)
            assert self.result[0][name] == own, f"{self.where}: {self.result[0]}"

    def never_installs(self, _: object) -> None:
        calls = [own for own in self.host.packages.calls if "install" in own]
        assert not [own for own in calls if "--simul" not in own], f"{self.where}: {calls}"

    def offers(self, package: list[str]) -> None:
        self.host.packages.offered.add(tuple(package))

    def trial_words(self, there: bool) -> None:
        """The words of a first boot."""
        found = {*FIRST_BOOT} & {*self.host.line}
        assert found == ({*FIRST_BOOT} if there else set()), f"{self.where}: {found}"

    @property
    def entry(self) -> str:
        """The one of the new kernel."""
        return self._entry.read_text()

    @property
    def _entry(self) -> Path:
        (file,) = (self.host.path / "boot/loader/entries").glob(f"*{NEW}*.conf")
        return file

    def entry_of_new(self, pair: list[str]) -> None:
        """In it a text is another one."""
        self._entry.write_text(self.entry.replace(*pair))

    def unsupported(self, text: str) -> None:
        """Why a plan says that the host cannot have the first setting."""
        self.plan(None)
        self.row({"status": "unsupported", "reason": text})

    def locked(self, _: object) -> None:
        """Somebody holds every lock."""
        real = fcntl.fcntl

        def held(descriptor: int, command: int, asked: bytes) -> bytes:
            if command != fcntl.F_GETLK:
                return bytes(real(descriptor, command, asked))
            return struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 4711)

        self.patch.setattr(fcntl, "fcntl", held)

    def grows(self, _: object) -> None:
        """The kernel that runs is of 8 MiB, and its initramfs of 40 MiB, wherever they are."""
        for own in {*self.host.loader.packaged(OLD), *self.host.loader.booted(OLD)}:
            os.truncate(self.host.path / own, (8 if "linu" in own else 40) << 20)

    def loses(self, which: int) -> None:
        """A file that is booted."""
        (self.host.path / self.host.loader.booted(OLD)[which]).unlink()

    def room(self, left: dict[str, int]) -> None:
        """Partitions have so many MiB left, by the last part of their place; others are empty."""

        def look(place: str) -> SimpleNamespace:
            free = left.get(Path(place).name, 1 << 20)
            return SimpleNamespace(f_bavail=(free << 20) // 4096, f_frsize=4096)

        self.patch.setattr(os, "statvfs", look)

    def secure_boot(self, _: object) -> None:
        self.host.write(SECURE_BOOT[1:], "").write_bytes(b"\6\0\0\0\1")

    def fails_with_it(self, verb: str) -> None:
        """The new kernel stays installed, which no restore takes away."""
        self.result = self.host.fail(verb, **self._told(verb))

    def signs(self, name: str) -> None:
        (self.host.path / name).write_bytes(image(signed=True))

    def no_timer(self, _: object) -> None:
        """None can be set."""

        def fail(*_: Any) -> None:
            raise Failed("no timer")

        self.patch.setattr(unattended, "arm_timer", fail)


def image(signed: bool) -> bytes:
    """A PE32+ image without code."""
    data = bytearray(1024)
    data[0x3C:0x40] = struct.pack("<I", 128)
    data[128:132] = b"PE\0\0"
    data[152:154] = struct.pack("<H", 0x20B)
    data[152 + 112 + 36 : 152 + 112 + 40] = struct.pack("<I", 1536 if signed else 0)
    return bytes(data)
