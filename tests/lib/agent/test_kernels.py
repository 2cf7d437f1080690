# SPDX-License-Identifier: Apache-2.0
"""A kernel, or a command line: tried by one boot, kept when confirmed, and else taken back."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgetune.agent import host as host_module
from edgetune.agent.boot_loaders import boot_loaders
from edgetune.agent.host import Host
from edgetune.agent.kinds.kernel_package import is_signed
from edgetune.agent.package_managers import Dpkg, Package
from edgetune.agent.protocol import Failed, Refused
from tests.support.agent_root import near_root, until
from tests.support.kernels import GRACE, NEW, OLD, KernelHost, cmdline, doubles_of, kernel_host
from tests.support.machine_kernels import image

OFF = cmdline("mitigations=off")


@pytest.fixture(params=[kind.name for kind in boot_loaders()])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KernelHost]:
    with kernel_host(tmp_path / "host", request.param) as own:
        yield own


@pytest.fixture
def debian(tmp_path: Path) -> Iterator[KernelHost]:
    with kernel_host(tmp_path / "host") as own:
        yield own


def tried_and_kept(host: KernelHost, *settings: dict[str, Any]) -> None:
    """Apply, boot, confirm."""
    applied = host.apply(*settings, **GRACE)
    assert applied["changed"] and applied["state"] == "provisional"
    assert host.boot_anew() == []
    assert host.confirm(*settings)["confirmed"], host.plan(*settings)


class Cut(BaseException):
    """The power is gone."""


def drafts(host: KernelHost) -> set[str]:
    """What is left of files that did not come to their places."""
    return {name for name in host.tree() if ".edgetune-" in name}


def cut_after(moment: int, host: KernelHost, patch: pytest.MonkeyPatch) -> None:
    """Cut the power of a host at one of the agent's writes, or before a program that it runs."""
    left = [moment]

    def counted(real: Any) -> Any:
        def call(*given: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise Cut
            return real(*given, **more)

        return call

    for name in ("rename", "unlink", "mkdir", "symlink"):
        patch.setattr(os, name, counted(getattr(os, name)))
    patch.setattr(host.loader, "attempt", counted(host.loader.attempt))


@pytest.mark.slow
@pytest.mark.parametrize("moment", range(44))
def test_a_power_cut_at_any_moment_leads_to_the_old_kernel_or_to_the_new_one(
    debian: KernelHost, moment: int
) -> None:
    """Killed at each write of the agent, from the start of the apply to the end of the confirm."""

    cut_after(moment, debian, debian.patch)
    confirmed = False
    try:
        debian.apply(debian.kernel(), OFF, **GRACE)
        debian.boot_anew()
        confirmed = debian.confirm(debian.kernel(), OFF)["confirmed"]
    except Cut:
        pass
    debian.patch.undo()
    with doubles_of(debian):
        assert debian.boot_anew() == []
        release, line, _ = debian.stable()
        state = debian.state()
        # Whether the answer arrived or not.
        kept = state == "confirmed"
        assert kept or not confirmed
        assert (release, "mitigations=off" in line) == ((NEW, True) if kept else (OLD, False))
        # Before there is a boot hook nothing was changed.
        assert kept or state == "none" or (state == "applying" and moment < 10)
        assert not debian.loader.once
        if not kept:
            debian.restore()
        assert not drafts(debian)


@pytest.mark.slow
@pytest.mark.parametrize("moment", range(16))
def test_a_power_cut_at_any_moment_of_a_restore_leads_to_the_old_kernel(
    host: KernelHost, moment: int
) -> None:
    was = host.stable()
    tried_and_kept(host, host.kernel(), OFF)
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Cut):
        cut_after(moment, host, patch)
        host.restore()
    begun = host.state() != "confirmed"
    assert begun or moment < 4
    assert host.boot_anew() == []
    if not begun:
        host.restore()
    assert host.stable() == was and host.state() == "none" and not drafts(host)


def test_a_signature_is_a_table_of_certificates() -> None:
    assert is_signed(image(signed=True))
    for data in (image(signed=False), b"", b"MZ" * 99):
        assert not is_signed(data)


@pytest.mark.processes
def test_an_installation_that_takes_too_long_goes_on_and_keeps_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever kills apt-get leaves dpkg half way, which goes on or asks for a person."""
    with near_root(tmp_path / "host") as root:
        done = tmp_path / "done"
        script = f"#!/bin/sh\necho begun\nsleep 1\necho far too late; echo well > {done}\n"
        root.write("usr/local/sbin/apt-get", script).chmod(0o755)
        inside = Host(str(root.path))
        monkeypatch.setitem(host_module.TO_THE_END, "apt-get", 0.1)
        with inside.lock():
            with pytest.raises(Failed, match="apt-get has not ended after 0.1 s, and goes on"):
                inside.attempt("apt-get", "install")
            assert not done.exists()
        with pytest.raises(Refused, match="busy"), Host(str(root.path)).lock(0.0):
            pass
        assert until(lambda: done.read_text() == "well\n")
        with Host(str(root.path)).lock(5.0):
            pass
        monkeypatch.setitem(host_module.TO_THE_END, "apt-get", 30)
        assert inside.attempt("apt-get", "install") == (0, "begun\nfar too late\n", "")
    # The agent has ended by then, and leaves it to init.
    os.waitpid(-1, 0)


KERNEL = "linux-image-6.1.0-9-amd64"
DIVERTED = "/boot/vmlinuz-6.1.0-9-amd64\n/boot/vmlinuz-6.1.0-9-amd64.distrib\n"


@pytest.mark.processes
@pytest.mark.skipif(not shutil.which("dpkg-query"), reason="needs dpkg")
@pytest.mark.parametrize(
    ("diversions", "signer_holds"),
    [("", 0), (f"{DIVERTED}:\n", 0), (f"{DIVERTED}a-signer\n", 0), (f"{DIVERTED}a-signer\n", 1)],
    ids=["plain", "local", "away", "replaced"],
)
def test_the_package_of_a_kernel_is_known_where_files_are_diverted(
    tmp_path: Path, diversions: str, signer_holds: bool
) -> None:
    """Told by the real dpkg-query, of a database of its own."""
    database = tmp_path / "var/lib/dpkg"
    for name in ("info", "updates"):
        (database / name).mkdir(parents=True)
    (database / "diversions").write_text(diversions)
    told = "Package: {}\nStatus: install ok installed\nArchitecture: amd64\nVersion: 6.1.27-1\n"
    (database / "status").write_text("\n".join(map(told.format, (KERNEL, "a-signer"))))
    own = "/boot\n/boot/vmlinuz-6.1.0-9-amd64\n"
    (database / f"info/{KERNEL}.list").write_text(f"/.\n{own}")
    (database / "info/a-signer.list").write_text(f"/.\n{own if signer_holds else ''}")
    program = tmp_path / "usr/local/sbin/dpkg-query"
    program.parent.mkdir(parents=True)
    real = shutil.which("dpkg-query")
    program.write_text(f'#!/bin/sh\nexec {real} --admindir={database} "$@"\n')
    program.chmod(0o755)
    assert Dpkg(Host(str(tmp_path))).of_release("6.1.0-9-amd64") == Package(KERNEL, "6.1.27-1")
