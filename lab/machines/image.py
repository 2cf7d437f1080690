# SPDX-License-Identifier: Apache-2.0
"""The disk of all machines before their first boot: Debian, made of its packages once and kept.

A root file system is built of packages (mmdebstrap) and of the files in `image/`, and written into
the one partition of a disk (mke2fs). A first boot of that disk, whose kernel QEMU loads, has
Debian's own grub-install and update-grub put the boot loader there. So nothing is mounted here.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

FILES = Path(__file__).with_name("image")
SUITE = "bookworm"
# What boots it first; then what lab hosts run; then what tunings are about.
PACKAGES = (
    *("grub-pc", "initramfs-tools", "zstd"),
    *("systemd", "systemd-sysv", "udev", "dbus", "libpam-systemd", "qemu-guest-agent"),
    *("openssh-server", "nginx-light", "libnginx-mod-http-echo", "python3"),
    *("ethtool", "iproute2", "e2fsprogs", "irqbalance", "kmod", "numactl", "procps"),
)
ENABLED = ("lab-identity.service", "systemd-networkd.service", "nginx.service")
# What would take CPU time of the emulation, or wait for somebody at a screen.
MASKED = (
    *("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "fstrim.timer"),
    *("e2scrub_all.timer", "e2scrub_reap.service", "man-db.timer"),
    *("getty@tty1.service", "serial-getty@ttyS0.service"),
)
SLOW_BODY_BYTES = 200_000
# Room for Debian, a second kernel with its modules, and what apt fetches for it; mostly a hole.
DISK_BYTES = 4 << 30
FIRST_SECTOR = 2048  # GRUB's core image lies between the partition table and it
SECTOR = 512
# GRUB of that suite cannot read, or cannot write to, file systems with these.
FEATURES = "^metadata_csum_seed,^orphan_file"
# Machines run the last kernel but one, and a repository of their own has the last one. Its package
# is Debian's but for its compression: emulation takes minutes to unpack xz.
KERNELS = """
chroot . apt-cache search --names-only '^linux-image-[0-9.]+-[0-9]+-amd64$' |
    cut -d ' ' -f 1 | sort --version-sort >kernels
old=$(tail -n 2 kernels | head -n 1) new=$(tail -n 1 kernels)
[ "$old" != "$new" ] || { echo "the suite has but one kernel" >&2; exit 1; }
chroot . apt-get install --yes "$old"
mkdir -p srv/kernels
chroot . sh -euc 'cd /srv/kernels
    apt-get download "$0"
    for file in *.deb; do
        dpkg-deb --raw-extract $file unpacked
        dpkg-deb --build -Zzstd -z1 unpacked $file >&2
        rm -rf unpacked
        dpkg-deb --field $file
        echo "Filename: ./$file"
        echo "Size: $(stat --format %s $file)"
        echo "SHA256: $(sha256sum $file | cut -d " " -f 1)"
        echo
    done >Packages
    rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*
    echo "deb [trusted=yes] file:/srv/kernels ./" >/etc/apt/sources.list
    apt-get update' "$new"
rm kernels
"""
CHANGES = f"""set -eu
cd "$1"
{KERNELS}
rm -f etc/ssh/ssh_host_* etc/resolv.conf
: >etc/machine-id
mkdir -m 700 -p root/.ssh
mkdir -p var/www
head -c {SLOW_BODY_BYTES} /dev/zero | tr '\\0' x >var/www/slow
chroot . systemctl --quiet enable {" ".join(ENABLED)}
chroot . systemctl --quiet mask {" ".join(MASKED)}
"""
# Processes and mounts of a build end with it, however it ends.
ALONE = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
)
BOOT_LOADER_SECONDS = 600.0
INSTALLED = "lab: the boot loader is installed"
Say = Callable[[str], None]


class Image:
    """The image of the present recipe, in a directory that only its owner may read.

    `cache` is that directory; without it edgetune/machines below XDG_CACHE_HOME or ~/.cache.
    """

    def __init__(self, cache: Path | None = None) -> None:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self.cache = cache or base / "edgetune" / "machines"
        self.path = self.cache / f"{recipe()}.img"

    @property
    def log(self) -> Path:
        """What the programs of the last build said."""
        return self.cache / "build.log"

    def build(self, say: Say = print) -> Path:
        """Build it unless it is there; `say` is told each step. OSError when one fails."""
        self.cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone(self.cache / "lock"):
            if not self.path.exists():
                for left in self.cache.glob("building-*"):
                    shutil.rmtree(left)
                with tempfile.TemporaryDirectory(prefix="building-", dir=self.cache) as place:
                    self._build(Path(place), say)
        return self.path

    def _build(self, place: Path, say: Say) -> None:
        self.log.write_bytes(b"")
        root, disk = place / "root", place / "disk"
        say(f"installing Debian {SUITE} into a directory (about two minutes)")
        self._run(*_mmdebstrap(place, root))
        say("writing it into a disk")
        _make_disk(disk)
        partition = ["-E", f"offset={FIRST_SECTOR * SECTOR}", str(disk), f"{_partition_kib()}k"]
        self._run("mke2fs", "-q", "-t", "ext4", "-O", FEATURES, "-d", root, *partition)
        say("booting it once, to install its boot loader (about one minute)")
        self._install_boot_loader(root, disk)
        disk.replace(self.path)

    def _install_boot_loader(self, root: Path, disk: Path) -> None:
        console = disk.with_name("console")
        line = "root=/dev/vda1 rw console=ttyS0 panic=-1 no_timer_check init=/usr/local/lib/lab/"
        self._run(
            *("qemu-system-x86_64", "-nodefaults", "-display", "none", "-no-reboot"),
            *("-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "1024"),
            *("-kernel", root / "vmlinuz", "-initrd", root / "initrd.img"),
            *("-append", f"{line}install_boot_loader", "-device", "virtio-rng-pci"),
            *("-drive", f"file={disk},format=raw,if=virtio,cache=unsafe"),
            *("-serial", f"file:{console}"),
            seconds=BOOT_LOADER_SECONDS,
        )
        told = console.read_text(errors="replace")
        with self.log.open("a") as log:
            log.write(told)
        if INSTALLED not in told:
            raise OSError(f"the boot loader was not installed: see {self.log}")

    def _run(self, *words: str | Path, seconds: float | None = None) -> None:
        with self.log.open("ab") as log:
            try:
                done = subprocess.run(
                    [*ALONE, *map(str, words)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    timeout=seconds,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise OSError(f"{words[0]} did not end in {seconds:.0f} s") from None
        if done.returncode != 0:
            raise OSError(f"{words[0]} failed: see {self.log}")


def recipe() -> str:
    """A key that changes with all that an image is made of, save the versions of packages."""
    made_of = (SUITE, PACKAGES, CHANGES, DISK_BYTES, FIRST_SECTOR, FEATURES)
    digest = hashlib.sha256(repr(made_of).encode())
    for path in _files():
        digest.update(f"{path.relative_to(FILES)} {os.access(path, os.X_OK)}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _files() -> list[Path]:
    return sorted(path for path in FILES.rglob("*") if path.is_file())


def _mmdebstrap(place: Path, root: Path) -> list[str]:
    """Our files are there before the packages that read them as they are installed."""
    files, changes = place / "files", place / "changes"
    for path in _files():
        copy = files / path.relative_to(FILES)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        copy.chmod(0o755 if os.access(path, os.X_OK) else 0o644)
    changes.write_text(CHANGES)
    return [
        *("mmdebstrap", "--variant=minbase", "--mode=root", f"--include={','.join(PACKAGES)}"),
        *('--aptopt=APT::Install-Recommends "false"', "--dpkgopt=force-confold"),
        "--skip=cleanup/apt/lists",
        f'--essential-hook=cp --recursive --preserve=mode {files}/. "$1"',
        f'--customize-hook=sh {changes} "$1"',
        *(SUITE, str(root)),
    ]


def _make_disk(disk: Path) -> None:
    with disk.open("wb") as file:
        file.truncate(DISK_BYTES)
    table = f"label: dos\nstart={FIRST_SECTOR}, type=83, bootable\n"
    words = ["sfdisk", "--quiet", str(disk)]
    subprocess.run(words, input=table, text=True, check=True, capture_output=True)


def _partition_kib() -> int:
    return (DISK_BYTES - FIRST_SECTOR * SECTOR) // 1024


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Two labs that begin at once build one image."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
