# SPDX-License-Identifier: Apache-2.0
"""Private stand-ins for the settings that the kernel has once per machine, not once per host.

Without them `sysctl -w vm.swappiness=1` in a host would change the whole machine. In a host's
/proc/sys everything is a plain copy, except what each network or UTS namespace has of its own.
Known gaps: a copy takes any value, and what is read-only in the kernel can be written.
"""

from __future__ import annotations

import shutil
import stat
import uuid
from pathlib import Path

from lab.bmc.machine import serial_of, uuid_of

from . import kernel

SYSCTLS = Path("/proc/sys")
OWN_DIRECTORIES = ("net/ipv4", "net/ipv6", "net/unix", "net/netfilter")
OWN_FILES = ("kernel/hostname", "kernel/domainname", "kernel/random/uuid")
# Per namespace but read-only there; a host may tune its copy.
COPIED_IN_NET_CORE = {"rmem_max", "wmem_max", "rmem_default", "wmem_default"}

TRANSPARENT_HUGE_PAGES = {
    "enabled": "always [madvise] never\n",
    "defrag": "always defer defer+madvise [madvise] never\n",
}
COMMAND_LINE = "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro quiet\n"
MISSED = "rx_missed_errors"
READ_ONLY_IN_PROC = ("sysrq-trigger", "irq", "bus", "fs", "acpi")


def build_template(template: Path) -> None:
    """Copy the machine's /proc/sys, once per lab; of `net` only what hosts see as copies."""
    for top in ("abi", "debug", "dev", "fs", "kernel", "user", "vm", "net/core"):
        if (SYSCTLS / top).is_dir():
            _copy_tree(SYSCTLS / top, template / top)
    for name in OWN_DIRECTORIES:
        (template / name).mkdir(parents=True)


def _copy_tree(source: Path, target: Path) -> None:
    target.mkdir(parents=True)
    for path in source.iterdir():
        if path.name == "binfmt_misc":  # looking into it can make systemd mount something
            continue
        if path.is_dir():
            _copy_tree(path, target / path.name)
        else:
            _copy_file(path, target / path.name)


def _copy_file(source: Path, target: Path) -> None:
    """Same content and mode; empty where it cannot be read (write-only, or no such device)."""
    try:
        target.write_bytes(source.read_bytes())
    except OSError:
        target.touch()
    target.chmod(stat.S_IMODE(source.stat().st_mode))


def show_sysctls(template: Path, scratch: Path, proc: Path) -> None:
    """Put the private view over `proc`/sys, in the mount and network namespace of a new host."""
    real, view = proc / "sys", scratch / "sysctls"
    _overlay(template, scratch, view)
    own = [*OWN_DIRECTORIES, *OWN_FILES]
    own += [f"net/core/{name}" for name in _own_in_net_core(real)]
    for name in own:
        if (real / name).exists():
            kernel.bind(real / name, view / name)
    (view / "kernel/random/boot_id").write_text(f"{uuid.uuid4()}\n")
    kernel.mount(view, real, flags=kernel.MOVE)


def _own_in_net_core(real: Path) -> list[str]:
    names = {path.name for path in (real / "net/core").iterdir()}
    return sorted(names - COPIED_IN_NET_CORE)


def _overlay(template: Path, scratch: Path, view: Path) -> None:
    layers = {"lowerdir": template, "upperdir": scratch / "changed", "workdir": scratch / "work"}
    for directory in (layers["upperdir"], layers["workdir"], view):
        directory.mkdir()
    options = ",".join(f"{key}={path}" for key, path in layers.items())
    kernel.mount("sysctls", view, "overlay", data=options)


def show_proc(scratch: Path, proc: Path) -> None:
    """Hide the machine's command line, and take away the buttons of /proc."""
    line = scratch / "cmdline"
    line.write_text(COMMAND_LINE)
    kernel.bind(line, proc / "cmdline")
    for name in READ_ONLY_IN_PROC:
        if (proc / name).exists():
            kernel.bind(proc / name, proc / name, read_only=True)


def show_sys(scratch: Path, sys: Path, name: str) -> None:
    """A host may change its own network devices and its copy of the huge page files, no more.

    Where the machine has DMI, the host of that `name` has its own, as its BMC tells it.

    What its card missed is a file, too: `drops` counts there what a real card would.
    """
    writable = scratch / "sys"
    writable.mkdir()
    kernel.mount("sysfs", writable, "sysfs")
    kernel.bind(writable, sys, read_only=True)
    devices = "devices/virtual/net"
    kernel.bind(writable / devices, sys / devices)
    missed = scratch / MISSED
    missed.write_text("0\n")
    kernel.bind(missed, sys / devices / "eth0/statistics" / MISSED, read_only=True)
    for file, text in TRANSPARENT_HUGE_PAGES.items():
        real, copy = sys / "kernel/mm/transparent_hugepage" / file, scratch / file
        if real.exists():
            copy.write_text(text)
            kernel.bind(copy, real)
    for own, text in (("product_uuid", uuid_of(name)), ("product_serial", serial_of(name))):
        real, copy = sys / "class/dmi/id" / own, scratch / own
        if real.exists():
            copy.write_text(f"{text}\n")
            kernel.bind(copy, real, read_only=True)
    kernel.detach(writable)


def clear(scratch: Path) -> None:
    """Forget everything a host changed in its copies: they are made anew at each boot."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
