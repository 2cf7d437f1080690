# SPDX-License-Identifier: Apache-2.0
"""One host: its disk, which outlives a reboot, and its boot up to the start of its init."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path

from . import disk, kernel, sysview
from .layout import Address

# Numbers of <linux/capability.h>: what reaches beyond a host's namespaces
# (kernel modules, raw I/O, the machine's clock, device nodes).
DROPPED_CAPABILITIES = (16, 17, 25, 27)
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
INIT = ("/usr/bin/busybox", "init")
# In the order in which nsenter takes them.
NAMESPACES = ("mount", "uts", "ipc", "net", "pid", "time")
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/bin", "HOME": "/"}


def prepare_disk(directory: Path, address: Address) -> str:
    """Make a host's disk; its public host key comes back."""
    disk.make(directory / "own")
    files = directory / "own/files"
    (files / "etc/ssh").mkdir(parents=True)
    (directory / "own/work").mkdir()
    (files / "etc/hostname").write_text(f"{address.name}\n")
    (files / "etc/hosts").write_text(f"127.0.0.1 localhost\n{address.ip} {address.name}\n")
    (files / "etc/lab-address").write_text(f"{address.ip}\n")
    key = files / "etc/ssh/ssh_host_ed25519_key"
    make_key(key, address.name)
    for name in ("root", "scratch"):
        (directory / name).mkdir()
    return key.with_suffix(".pub").read_text()


def make_key(path: Path, comment: str) -> None:
    """A new ed25519 key pair without a passphrase at `path` and `path`.pub."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
    subprocess.run(command, check=True, capture_output=True)


def boot(disks: Path, address: Address, console: Path, namespace: int) -> int:
    """Start the host in that network namespace; the PID of its init comes back while it is still
    booting.

    Its end tells why: SIGHUP after reboot(2), SIGINT after a power-off, SIGKILL after a power cut.
    """
    kinds = {"pid": kernel.NEW_PID, "time": kernel.NEW_TIME}
    with kernel.own_namespaces_kept(**kinds):
        kernel.unshare(kernel.NEW_PID | kernel.NEW_TIME)
        offset = f"boottime -{int(time.clock_gettime(time.CLOCK_BOOTTIME))} 0"
        Path("/proc/self/timens_offsets").write_text(offset)
        pid = os.fork()
        if pid == 0:
            _become_init(disks, address, console, namespace)
    return pid


def keep_busy(pid: int) -> subprocess.Popen[bytes]:
    """Let a running host ask its own web server for more than it can do at once."""
    command = ["nsenter", "--target", str(pid), "--all", "/usr/local/lib/lab/keep_busy"]
    return subprocess.Popen(command, env=ENVIRONMENT, start_new_session=True)


def open_namespaces(pid: int) -> list[int]:
    """Descriptors of the NAMESPACES of a running host."""
    names = ("mnt", *NAMESPACES[1:])
    return [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name in names]


def _become_init(disks: Path, address: Address, console: Path, namespace: int) -> None:
    try:
        _take_console(console)
        kernel.setns(namespace, kernel.NEW_NET)
        kernel.unshare(kernel.NEW_MOUNTS | kernel.NEW_UTS | kernel.NEW_IPC)
        kernel.mount("none", "/", flags=kernel.RECURSIVE | kernel.PRIVATE)
        os.chdir(disks)
        _mount_root(Path(address.name))
        socket.sethostname(address.name)
        _enter_root(Path(address.name, "root"))
        for capability in DROPPED_CAPABILITIES:
            kernel.drop_capability(capability)
        os.execve(INIT[0], INIT, ENVIRONMENT)
    except BaseException as error:
        os.write(2, f"boot of {address.name} failed: {error}\n".encode())
    finally:
        os._exit(1)


def _take_console(console: Path) -> None:
    os.setsid()
    log = os.open(console, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)


def _mount_root(host: Path) -> None:
    """Paths are relative to the disks: a comma or colon in the lab's home would end an option."""
    root = host / "root"
    layers = f"lowerdir=image:/,upperdir={host}/own/files,workdir={host}/own/work"
    kernel.mount("root", root, "overlay", data=layers)
    scratch = host / "scratch"
    sysview.clear(scratch)
    kernel.mount("proc", root / "proc", "proc")
    sysview.show_sysctls(Path("sysctls"), scratch, root / "proc")
    sysview.show_proc(scratch, root / "proc")
    sysview.show_sys(scratch, root / "sys", host.name)
    kernel.mount("run", root / "run", "tmpfs", data="mode=755")
    kernel.mount("tmp", root / "tmp", "tmpfs", data="mode=1777")
    _mount_devices(root / "dev")


def _mount_devices(dev: Path) -> None:
    kernel.mount("dev", dev, "tmpfs", data="mode=755")
    for name in DEVICES:
        (dev / name).touch()
        kernel.bind(Path("/dev", name), dev / name)
    for name in ("pts", "shm"):
        (dev / name).mkdir()
    kernel.mount("devpts", dev / "pts", "devpts", data="newinstance,ptmxmode=0666,mode=620,gid=5")
    (dev / "ptmx").symlink_to("pts/ptmx")
    (dev / "fd").symlink_to("/proc/self/fd")


def _enter_root(root: Path) -> None:
    """Make `root` the only tree there is."""
    os.chdir(root)
    kernel.pivot_root(".", ".")
    kernel.detach(".")
    os.chdir("/")
