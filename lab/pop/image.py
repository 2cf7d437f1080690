# SPDX-License-Identifier: Apache-2.0
"""The root file system of the hosts: this machine's programs under our own configuration.

A host's root is an overlay of three layers: its own disk, the image made here (the files of
`image/`, a copy of what programs need of the machine's `/etc`, and marks that hide what is this
machine's business), and the machine's `/`. Only programs (`/usr` and its like) are seen live: they
are too large to copy. A package that is installed beside a lab shows its programs there, and must
not replace or remove those of the hosts, since overlayfs leaves open what is seen then.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from .layout import TEXTFILES

FILES = Path(__file__).with_name("image")
ANYCAST_FILES = Path(__file__).with_name("anycast_image")
APPLICATION_FILES = Path(__file__).with_name("application_image")
SLOW_BODY_BYTES = 200_000
EXPORTER = "::respawn:/usr/local/lib/lab/run_exporter\n"
BIRD = "::respawn:/usr/local/lib/lab/run_bird\n"
APPLICATION = "::respawn:/usr/local/lib/lab/run_application\n"

PROGRAMS = {"bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr"}
EMPTY = ("dev", "home", "mnt", "proc", "root", "run", "sys", "tmp", "var")
# What programs need of /etc; the rest, keys and services above all, stays hidden.
KEPT_IN_ETC = {
    "alternatives",
    "debian_version",
    "ethertypes",
    "host.conf",
    "iproute2",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "nsswitch.conf",
    "os-release",
    "protocols",
    "python3",
    "services",
    "ssl",
}
OPAQUE_IN_USR = ("usr/lib/sysctl.d", "usr/local/lib/sysctl.d", "usr/local/sbin")


def build(
    image: Path,
    public_key: str,
    nic_queue: bool,
    machine: Path = Path("/"),
    exporter: bool = False,
    anycast: bool = False,
    application: bool = False,
) -> None:
    """Make the image at `image` (a new directory on a tmpfs); the same one serves all hosts.

    `exporter`: init starts Prometheus' node_exporter. `anycast`: it starts BIRD. `application`: it
    starts one behind nginx.
    """
    shutil.copytree(FILES, image)
    for wanted, files, line in (
        (anycast, ANYCAST_FILES, BIRD),
        (application, APPLICATION_FILES, APPLICATION),
    ):
        if wanted:
            shutil.copytree(files, image, dirs_exist_ok=True)
            _add_service(image, line)
    _give_to_root(image)
    for name in (*EMPTY, *OPAQUE_IN_USR):
        _opaque(image / name)
    _fill(image, public_key, nic_queue)
    if exporter:
        _add_exporter(image)
    _hide(machine, image, PROGRAMS | {"etc"})
    _opaque(image / "etc")
    for name in KEPT_IN_ETC:
        _freeze(machine / "etc" / name, image / "etc" / name)


def _fill(image: Path, public_key: str, nic_queue: bool) -> None:
    for name in ("var/log/nginx", "var/lib/nginx", "var/www", "etc/sysctl.d", "etc/systemd/system"):
        (image / name).mkdir(parents=True)
    (image / "root").chmod(0o700)
    (image / "root/.ssh").mkdir(mode=0o700)
    (image / "root/.ssh/authorized_keys").write_text(public_key)
    (image / "var/www/slow").write_bytes(b"x" * SLOW_BODY_BYTES)
    (image / "etc/shadow").chmod(0o600)
    if nic_queue:
        (image / "etc/lab-nic-queue").touch()


def _add_exporter(image: Path) -> None:
    (image / TEXTFILES[1:]).mkdir(parents=True)
    _add_service(image, EXPORTER)


def _add_service(image: Path, line: str) -> None:
    with (image / "etc/inittab").open("a") as inittab:
        inittab.write(line)


def _give_to_root(image: Path) -> None:
    """A checkout may belong to anybody, and its modes come from a umask."""
    for path in [image, *image.rglob("*")]:
        os.chown(path, 0, 0)
        executable = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
        path.chmod(0o755 if executable else 0o644)


def _opaque(directory: Path) -> None:
    """Nothing of the machine's directory of that name is seen through this one."""
    directory.mkdir(parents=True, exist_ok=True)
    os.setxattr(directory, "trusted.overlay.opaque", b"y")


def _freeze(source: Path, copy: Path) -> None:
    """Copy what everybody may read, and so no keys: what changes later is not seen by hosts."""
    if source.is_symlink():
        copy.symlink_to(source.readlink())
    elif source.exists() and source.stat().st_mode & stat.S_IROTH:
        if source.is_dir():
            copy.mkdir()
            for path in source.iterdir():
                _freeze(path, copy / path.name)
        else:
            shutil.copyfile(source, copy)
        os.chown(copy, source.stat().st_uid, source.stat().st_gid)
        copy.chmod(stat.S_IMODE(source.stat().st_mode))


def _hide(machine: Path, image: Path, kept: set[str]) -> None:
    """Of a directory of the machine only the names in `kept` are seen; ours take their place."""
    for path in machine.iterdir():
        ours = image / path.name
        if path.name in kept:
            continue
        if ours.is_dir():
            _opaque(ours)
        elif not ours.exists():
            os.mknod(ours, stat.S_IFCHR, os.makedev(0, 0))
