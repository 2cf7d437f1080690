# SPDX-License-Identifier: Apache-2.0
"""A kernel, or a command line: tried by one boot, kept when confirmed, and else taken back."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgetune.hosts.agent import host as host_module
from edgetune.hosts.agent import unattended
from edgetune.hosts.agent.boot_loaders import BOOT_LOADERS, boot_loader
from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.kinds.kernel_package import SECURE_BOOT, is_signed
from edgetune.hosts.agent.package_managers.base import Package
from edgetune.hosts.agent.package_managers.dpkg import Dpkg
from edgetune.hosts.agent.protocol import Failed, Refused
from edgetune.vocabulary.command_line import FIRST_BOOT
from tests.support.agent_root import near_root, request, sysctl, until
from tests.support.boot_loaders.grub import GrubDouble
from tests.support.boot_loaders.systemd_boot import SystemdBootDouble
from tests.support.kernels import GRACE, NEW, OLD, Apt, KernelHost, cmdline, doubles_of, kernel_host

OFF = cmdline("mitigations=off")


@pytest.fixture(params=[kind.name for kind in BOOT_LOADERS])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KernelHost]:
    with kernel_host(tmp_path / "host", request.param) as own:
        yield own


@pytest.fixture
def debian(tmp_path: Path) -> Iterator[KernelHost]:
    with kernel_host(tmp_path / "host") as own:
        yield own


def problem(host: KernelHost, *settings: dict[str, Any]) -> str:
    """Why a plan says that the host cannot do the first of them."""
    row = host.plan(*settings)[0]
    assert row["status"] == "unsupported", row
    return str(row["reason"])


def tried_and_kept(host: KernelHost, *settings: dict[str, Any]) -> None:
    """Apply, boot, confirm."""
    applied = host.apply(*settings, **GRACE)
    assert applied["changed"] and applied["state"] == "provisional"
    assert host.boot_anew() == []
    assert host.confirm(*settings)["confirmed"], host.plan(*settings)


def test_an_upgrade_is_tried_kept_and_taken_back_without_its_package(host: KernelHost) -> None:
    before, old = host.tree(), host.loader.default
    kernel, off = host.plan(host.kernel(), OFF)
    assert kernel["runtime"] == kernel["persistent"] == host.packages.old
    assert (off["runtime"], off["persistent"]) == ("mitigations=auto", "mitigations=auto")
    assert (kernel["status"], off["status"]) == ("change", "change")
    assert host.tree() == before and not host.loader.calls, "a plan changes nothing"
    assert not [own for own in host.packages.calls if "install" in own and "--simul" not in own]
    host.apply(host.kernel(), **GRACE)
    assert host.release == OLD and host.loader.default == old, "nothing runs before the boot"
    told = host.confirm(host.kernel())
    assert not told["confirmed"] and not told["settings"][0]["ok"] and host.loader.default == old
    row = host.plan(host.kernel())[0]
    assert (row["runtime"], row["persistent"]) == (host.packages.old, host.packages.new)
    assert row["reason"] == "comes with the next boot"
    host.boot_anew()
    assert host.release == NEW and set(FIRST_BOOT) <= set(host.line)
    assert host.loader.default == old, "it is not the default before its confirmation"
    assert host.verifies(host.kernel())
    assert host.confirm(host.kernel())["confirmed"]
    assert host.loader.default == host.loader.id_of(NEW)
    release, line, _ = host.stable()
    assert release == NEW and not set(FIRST_BOOT) & set(line)
    assert host.verifies(host.kernel())
    assert host.confirm(host.kernel())["confirmed"], "it can be asked for again"
    assert host.restore()["changed"]
    assert host.release == NEW and host.loader.default == old
    assert "reboot, so that it is what runs" in problem(host, OFF)
    assert host.stable()[0] == OLD
    row = host.plan(host.kernel())[0]
    assert row["runtime"] == row["persistent"] == host.packages.old
    assert not host.restore()["changed"]
    assert not host.exists("boot/grub/custom.cfg")


def test_a_default_that_was_saved_by_titles_is_saved_so_again(debian: KernelHost) -> None:
    saved = f"Advanced options>Debian GNU/Linux, with Linux {OLD}"
    assert isinstance(debian.loader, GrubDouble)
    debian.loader.write_env({"saved_entry": saved})
    tried_and_kept(debian, debian.kernel())
    assert debian.loader.default == debian.loader.id_of(NEW)
    debian.restore()
    assert debian.loader.default == saved


def test_a_kernel_that_is_gone_is_not_gone_back_to(debian: KernelHost) -> None:
    old = debian.loader.default
    tried_and_kept(debian, debian.kernel())
    assert isinstance(debian.loader, GrubDouble)
    debian.loader.remove(OLD)
    error = debian.fail("restore", epoch=1, tuning="t")
    assert f"the boot menu has no entry {old}" in error["message"]
    assert any(f"no entry {old}" in why for why in debian.boot_anew())
    assert (debian.release, debian.state(), debian.asked) == (NEW, "restoring", 0)


def test_a_command_line_is_tried_and_kept_and_taken_back(host: KernelHost) -> None:
    consoles = cmdline("console=ttyS1 console=tty1")
    settings = [OFF, cmdline("", "quiet"), cmdline("isolcpus=2-5"), consoles]
    was = host.stable()
    before = host.tree()
    tried_and_kept(host, *settings)
    release, line, _ = host.stable()
    assert release == OLD and "quiet" not in line and not set(FIRST_BOOT) & set(line)
    assert {"mitigations=off", "isolcpus=2-5", "console=ttyS1", "console=tty1"} <= set(line)
    assert not {"mitigations=auto", "console=ttyS0"} & set(line)
    host.restore()
    assert host.stable() == was
    left = {name for name, was in before.items() if host.tree().get(name) != was}
    assert not {name for name in left if not name.startswith("proc/")}


def test_a_kernel_and_its_command_line_are_one_trial(host: KernelHost) -> None:
    """Its entry has none of our words once it was taken back: a later rollout of the kernel alone
    would keep them."""
    tried_and_kept(host, OFF, host.kernel())
    release, line, _ = host.stable()
    assert release == NEW and "mitigations=off" in line and "mitigations=auto" not in line
    host.restore()
    release, line, _ = host.stable()
    assert release == OLD and "mitigations=auto" in line and "mitigations=off" not in line
    tried_and_kept(host, host.kernel())
    release, line, _ = host.stable()
    assert release == NEW and "mitigations=auto" in line and "mitigations=off" not in line


@pytest.mark.parametrize("name", ["grub_bls", "systemd_boot"])
@pytest.mark.parametrize("named", [True, False])
def test_only_our_words_leave_the_entry_of_a_newer_kernel(
    tmp_path: Path, name: str, named: bool
) -> None:
    with kernel_host(tmp_path / "host", name) as host:
        tried_and_kept(host, OFF, host.kernel())
        (file,) = (host.path / "boot/loader/entries").glob(f"*{NEW}*.conf")
        text = file.read_text().replace("quiet", "loud")
        file.write_text(text)
        if not named:
            host.loader.forget_default()
        host.restore()
        assert host.loader.default == host.loader.id_of(OLD)
        # Without a default nobody knows whose words those of an entry are.
        wanted = text.replace("mitigations=off", "mitigations=auto") if named else text
        assert file.read_text() == wanted


@pytest.mark.parametrize("again", ["restore", "boot"])
def test_words_are_neither_kept_nor_back_before_the_menu_is(debian: KernelHost, again: str) -> None:
    was = debian.stable()
    debian.apply(OFF, **GRACE)
    debian.boot_anew()
    assert isinstance(debian.loader, GrubDouble)
    debian.loader.fails = True
    fields = {"epoch": 1, "tuning": "t", "digest": "sha256:1", "settings": [OFF]}
    for _ in range(2):
        assert "No space left" in debian.fail("confirm", **fields)["message"]
    debian.loader.fails = False
    assert debian.confirm(OFF)["confirmed"] and "mitigations=off" in debian.stable()[1]
    debian.loader.fails = True
    for _ in range(2):
        error = debian.fail("restore", epoch=1, tuning="t")
        assert "No space left" in error["message"] and debian.state() == "restoring"
        assert any("No space left" in why for why in debian.boot_anew())
    debian.loader.fails = False
    if again == "restore":
        assert debian.restore()["changed"]
    else:
        assert debian.boot_anew() == []
    assert debian.state() == "none" and debian.stable() == was
    assert not list((debian.path / "etc/default/grub.d").iterdir())


def panics(host: KernelHost, word: str) -> None:
    """GRUB forgot the entry before it booted it, and our boot hook finds the old kernel."""
    host.bad, boots = word, host.boots
    assert host.boot_anew() == [] and host.boots == boots + 2


def is_confirmed_by_nobody(host: KernelHost) -> None:
    """As without a network: nobody can reach it."""
    assert host.boot_anew() == []
    assert host.release == NEW and host.asked == 0
    host.time_out()


def boots_twice(host: KernelHost) -> None:
    assert host.boot_anew() == [] and host.release == NEW
    assert host.boot_anew() == []


@pytest.mark.parametrize(
    ("course", "asked"),
    [
        (lambda host: panics(host, NEW), 0),
        (lambda host: panics(host, "mitigations=off"), 0),
        (is_confirmed_by_nobody, 1),
        # Its timer runs out before the boot, so none is needed.
        (KernelHost.time_out, 0),
        (boots_twice, 0),
    ],
    ids=["kernel panics", "word panics", "nobody confirms", "no boot in time", "two boots"],
)
def test_what_is_not_confirmed_falls_back_by_itself(
    host: KernelHost, course: Callable[[KernelHost], None], asked: int
) -> None:
    settings = [host.kernel(), OFF]
    was = host.stable()
    host.apply(*settings, **GRACE)
    course(host)
    assert (host.release, host.state(), host.asked) == (OLD, "none", asked)
    assert not host.loader.once and not host.exists("etc/systemd/system/edgetune.service")
    assert not host.confirm(*settings)["confirmed"]
    assert host.stable() == was
    assert host.restore()["nothing_to_restore"]


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


def test_an_installation_that_fails_leaves_the_host_as_it_was(host: KernelHost) -> None:
    was = host.stable()
    host.packages.breaks = True
    reply = host.send(request("apply", **host.change(host.kernel(), **GRACE)))
    assert reply["error"]["reason"] == "undone", reply
    assert "kernel.package: cannot be set" in reply["error"]["message"]
    assert host.state() == "none" and host.stable() == was


def test_a_package_that_makes_itself_the_default_is_none(debian: KernelHost) -> None:
    old = debian.loader.default
    debian.packages.after_install = f"grub-set-default {debian.loader.id_of(NEW)}"
    debian.apply(debian.kernel(), **GRACE)
    assert debian.loader.default == old


def test_what_a_boot_tries_has_to_be_confirmed(host: KernelHost) -> None:
    for less in ({}, {"confirm_within": 60}, {"grace_boots": 1}):
        error = host.fail("apply", **host.change(OFF, **less))
        assert error["reason"] == "refused" and "has to be confirmed after it" in error["message"]
    assert not host.loader.once


def test_nothing_is_tried_or_kept_where_another_tuning_does_not_stand(debian: KernelHost) -> None:
    somaxconn = "proc/sys/net/core/somaxconn"
    debian.apply(sysctl("4096"), tuning="other")
    debian.write(somaxconn, "128\n")
    error = debian.fail("apply", **debian.change(OFF, **GRACE))
    assert "other does not stand here: sysctl:net.core.somaxconn" in error["message"]
    debian.write(somaxconn, "4096\n")
    debian.apply(OFF, **GRACE)
    debian.boot_anew()
    debian.write(somaxconn, "128\n")
    fields = {"epoch": 1, "tuning": "t", "digest": "sha256:1", "settings": [OFF]}
    error = debian.fail("confirm", **fields)
    assert "other: sysctl:net.core.somaxconn differs now" in error["message"]
    assert debian.state() == "provisional"
    assert not debian.exists("etc/default/grub.d/90-edgetune-mitigations.cfg")
    debian.write(somaxconn, "4096\n")
    assert debian.confirm(OFF)["confirmed"]


def test_a_later_kernel_is_taken_back_first(debian: KernelHost) -> None:
    tried_and_kept(debian, OFF)
    debian.apply(debian.kernel(), tuning="later", **GRACE)
    debian.boot_anew()
    assert debian.confirm(debian.kernel(), tuning="later")["confirmed"]
    error = debian.fail("restore", epoch=1, tuning="t")
    assert "later was applied later and changed what is booted" in error["message"]
    debian.restore("later")
    debian.restore("t")
    assert debian.stable()[0] == OLD and "mitigations=auto" in debian.line


def test_a_default_that_is_as_wanted_already_has_to_be_booted(host: KernelHost) -> None:
    """Somebody installed it, and has not booted it."""
    host.packages.put()
    tried_and_kept(host, host.kernel())
    assert host.stable()[0] == NEW


def another(host: KernelHost, package: str, version: str) -> dict[str, Any]:
    return host.kernel(package=package, version=version)


def hold(host: KernelHost) -> None:
    assert isinstance(host.packages, Apt)
    host.packages.installed[host.packages.new["package"]] = "6.1.157-1"
    host.packages.held.add(host.packages.new["package"])


def ask_for(host: KernelHost, entry: str) -> None:
    host.loader.attempt("grub-reboot", entry)


def run_own(host: KernelHost) -> None:
    host.write("proc/sys/kernel/osrelease", "6.9-own\n")


MENU = "boot/grub/grub.cfg"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda host: another(host, "linux-image-9.9", "9.9-1"), "Version '9.9-1' for 'linux-imag"),
        (
            lambda host: another(host, host.packages.old["package"], "6.1.153-2"),
            "would overwrite the kernel 6.1.0-40-amd64, which runs",
        ),
        (hold, "linux-image-6.1.0-41-amd64 is on hold"),
        (lambda host: (host.path / MENU).unlink(), "its boot loader is none that is known here"),
        (lambda host: ask_for(host, "memtest"), "the boot menu has no entry memtest"),
        (lambda host: ask_for(host, host.loader.id_of(OLD)), "somebody else asked for the entry"),
        (run_own, "no package holds the kernel 6.9-own"),
        (lambda host: host.loader.forget_default(), "grub-set-default"),
    ],
)
def test_a_host_that_could_not_fall_back_is_refused(
    debian: KernelHost, change: Callable[[KernelHost], Any], says: str
) -> None:
    assert says in problem(debian, change(debian) or debian.kernel())
    assert debian.ask("facts")["kernel"] in (OLD, "6.9-own"), "facts need no boot loader"


def test_a_locked_package_manager_refuses(debian: KernelHost) -> None:
    debian.write("var/lib/dpkg/lock-frontend", "")
    assert debian.plan(debian.kernel())[0]["status"] == "change", "it is not locked"
    real = fcntl.fcntl

    def held(descriptor: int, command: int, asked: bytes) -> bytes:
        if command != fcntl.F_GETLK:
            return bytes(real(descriptor, command, asked))
        return struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 4711)

    debian.patch.setattr(fcntl, "fcntl", held)
    assert "/var/lib/dpkg/lock-frontend is locked" in problem(debian, debian.kernel())


MIB = 1 << 20


def grow(host: KernelHost) -> None:
    """Let the kernel that runs be of 8 MiB, and its initramfs of 40 MiB, wherever they are."""
    for own in {*host.loader.packaged(OLD), *host.loader.booted(OLD)}:
        os.truncate(host.path / own, (8 if "linu" in own else 40) * MIB)


def leave(patch: pytest.MonkeyPatch, **left: int) -> None:
    """Let partitions have so many MiB left, by the last part of their place; others are empty."""

    def look(place: str) -> SimpleNamespace:
        free = left.get(Path(place).name, 1 << 20)
        return SimpleNamespace(f_bavail=free * MIB // 4096, f_frsize=4096)

    patch.setattr(os, "statvfs", look)


@pytest.mark.parametrize(
    ("name", "needed"), [("grub", 76), ("grub_bls", 76), ("systemd_boot", 136)]
)
def test_a_full_boot_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, needed: int
) -> None:
    """A quarter more than what is there, and 16 MiB; systemd-boot has a copy of each file."""
    with kernel_host(tmp_path / "host", name) as host:
        grow(host)
        leave(monkeypatch, boot=needed)
        assert host.plan(host.kernel())[0]["status"] == "change"
        leave(monkeypatch, boot=needed - 1)
        says = f"/boot has {needed - 1} MiB left, and another kernel may need {needed}"
        assert says in problem(host, host.kernel())


@pytest.mark.parametrize("place", ["efi", "boot/efi"])
def test_a_full_partition_of_efi_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    with kernel_host(tmp_path / "host", "systemd_boot") as host:
        assert isinstance(host.loader, SystemdBootDouble)
        host.loader.move_to(place)
        grow(host)
        leave(monkeypatch, efi=76, boot=76)
        assert host.plan(host.kernel())[0]["status"] == "change"
        for full, own in (("boot", "boot"), ("efi", place)):
            leave(monkeypatch, **{full: 75})
            says = f"/{own} has 75 MiB left, and another kernel may need 76"
            assert says in problem(host, host.kernel())


@pytest.mark.parametrize("which", [0, 1])
def test_a_kernel_whose_files_are_not_found_says_nothing_of_the_room(
    host: KernelHost, which: int
) -> None:
    file = host.loader.booted(OLD)[which]
    (host.path / file).unlink()
    says = problem(host, host.kernel())
    assert "nobody can tell how much room" in says and Path(file).name in says
    assert host.plan(OFF)[0]["status"] == "change", "a command line takes no room"


@pytest.mark.parametrize("name", ["grub", "grub_bls"])
def test_a_boot_on_the_root_partition_is_found(tmp_path: Path, name: str) -> None:
    """Its paths begin with /boot; Fedora has a link in there that leads to itself."""
    with kernel_host(tmp_path / "host", name) as host:
        menu = "boot/grub/grub.cfg" if name == "grub" else f"boot/loader/entries/0b1c-{OLD}.conf"
        host.write(menu, re.sub("[ \t]/(vmlinuz|init)", r" /boot/\1", host.read(menu)))
        assert host.plan(host.kernel())[0]["status"] == "change"
        (host.path / "boot/boot").symlink_to(".")
        assert host.plan(host.kernel())[0]["status"] == "change"


@pytest.mark.parametrize("version", ["6.1.153-1", "6.1.154-1", "6.1.158-1"])
def test_a_host_whose_running_package_was_replaced_has_to_reboot_first(
    debian: KernelHost, version: str
) -> None:
    """As a security update does that leaves the ABI. Whatever the menu boots by now, it is not
    what runs, which is still told."""
    assert isinstance(debian.packages, Apt)
    debian.packages.installed["linux-image-6.1.0-40-amd64"] = "6.1.154-1"
    row = debian.plan(debian.kernel())[0]
    assert row["runtime"] == debian.packages.old
    assert row["persistent"] == {**debian.packages.old, "version": "6.1.154-1"}
    assert debian.plan(OFF)[0]["status"] == "change"
    package = debian.packages.new if version == "6.1.158-1" else debian.packages.old
    own = debian.kernel(package=package["package"], version=version)
    says = "linux-image-6.1.0-40-amd64 is 6.1.154-1 on the disk, and 6.1.153-1 runs: reboot, so"
    assert says in problem(debian, own)
    assert debian.send(request("apply", **debian.change(own, **GRACE)))["error"]
    assert not debian.loader.once
    debian.boot_anew()
    if version == "6.1.153-1":
        assert "would overwrite the kernel" in problem(debian, own)
    else:
        wanted = "noop" if version == "6.1.154-1" else "change"
        assert debian.plan(own)[0]["status"] == wanted


def test_a_host_whose_default_does_not_run_has_to_reboot_first(host: KernelHost) -> None:
    """As after an update of a host that makes kernels the default."""
    host.packages.put()
    boot_loader(Host(str(host.path))).set_default(host.loader.id_of(NEW))
    says = f"the kernel {NEW} is the default, and {OLD} runs: reboot, so that it is what runs"
    host.apply(sysctl("4096"), tuning="other", confirm_within=60)
    for own in (OFF, host.kernel()):
        assert says in problem(host, own)
        assert host.send(request("apply", **host.change(own, **GRACE)))["error"]
    assert host.plan(host.kernel(**host.packages.old))[0]["status"] == "unsupported"
    assert not host.loader.once
    host.restore("other")
    host.boot_anew()
    assert host.plan(host.kernel())[0]["status"] == "noop"
    tried_and_kept(host, OFF)
    host.restore()
    assert host.stable()[0] == NEW


def test_a_trial_is_verified_although_its_kernel_is_not_the_default(host: KernelHost) -> None:
    host.apply(host.kernel(), OFF, **GRACE)
    host.boot_anew()
    assert [row["status"] for row in host.plan(host.kernel(), OFF)] == ["change", "change"]
    told = host.ask("verify", tuning="t", settings=[host.kernel(), cmdline("mitigations=auto")])
    reasons = [row["reason"] for row in told["settings"]]
    assert reasons == ["would be lost at the next boot", "comes with the next boot"]


@pytest.mark.parametrize("release", ["linux", ""])
def test_a_kernel_whose_entry_names_no_release_can_have_another_command_line(
    tmp_path: Path, release: str
) -> None:
    """As on Arch Linux: nobody can tell whether it is the one that runs."""
    with kernel_host(tmp_path / "host", "systemd_boot") as host:
        (file,) = (host.path / "boot/loader/entries").iterdir()
        text = re.sub("(?m)^version .*\n", "", file.read_text())
        file.write_text(re.sub("(?m)^linux .*", f"linux /vmlinuz-{release}", text))
        assert host.plan(OFF)[0]["status"] == "change"


def test_a_kernel_without_a_signature_is_left_where_secure_boot_is_on(debian: KernelHost) -> None:
    was = debian.stable()
    debian.write(SECURE_BOOT[1:], "").write_bytes(b"\6\0\0\0\1")
    reply = debian.send(request("apply", **debian.change(debian.kernel(), **GRACE)))
    assert reply["error"]["reason"] == "undone"
    assert f"/boot/vmlinuz-{NEW} is not signed" in reply["error"]["message"]
    # It is there by now, and the plan says the same.
    assert "is not signed" in problem(debian, debian.kernel())
    (debian.path / f"boot/vmlinuz-{NEW}").write_bytes(image(signed=True))
    debian.write(SECURE_BOOT[1:], "").write_bytes(b"\6\0\0\0\1")
    tried_and_kept(debian, debian.kernel())
    debian.restore()
    assert debian.stable() == was


def image(signed: bool) -> bytes:
    """A PE32+ image without code."""
    data = bytearray(1024)
    data[0x3C:0x40] = struct.pack("<I", 128)
    data[128:132] = b"PE\0\0"
    data[152:154] = struct.pack("<H", 0x20B)
    data[152 + 112 + 36 : 152 + 112 + 40] = struct.pack("<I", 1536 if signed else 0)
    return bytes(data)


def test_a_signature_is_a_table_of_certificates() -> None:
    assert is_signed(image(signed=True))
    for data in (image(signed=False), b"", b"MZ" * 99):
        assert not is_signed(data)


def test_a_package_without_a_kernel_is_refused_as_it_is_installed(debian: KernelHost) -> None:
    assert isinstance(debian.packages, Apt)
    debian.packages.offered.add(("linux-image-amd64", "6.1.158-1"))
    own = debian.kernel(package="linux-image-amd64", version="6.1.158-1")
    reply = debian.send(request("plan", tuning="t", digest="sha256:1", settings=[own]))
    row = reply["result"]["settings"][0] if reply["ok"] else reply["error"]
    assert "holds no kernel: name the package that does" in str(row)


def test_a_default_by_rpm_has_to_stay(tmp_path: Path) -> None:
    with kernel_host(tmp_path / "host", "grub_bls") as host:
        for text in ("UPDATEDEFAULT=yes\n", "", "UPDATEDEFAULT=no\nUPDATEDEFAULT=yes\n"):
            host.write("etc/sysconfig/kernel", text)
            assert "set UPDATEDEFAULT=no" in problem(host, host.kernel())
            assert host.plan(OFF)[0]["status"] == "change", "a command line installs nothing"


def test_a_timer_that_cannot_be_set_leads_back(debian: KernelHost) -> None:
    was = debian.stable()
    debian.apply(debian.kernel(), **GRACE)

    def fail(*_: Any) -> None:
        raise Failed("no timer")

    debian.patch.setattr(unattended, "arm_timer", fail)
    assert debian.boot_anew()
    assert (debian.release, debian.asked) == (OLD, 1)
    assert debian.stable() == was


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
