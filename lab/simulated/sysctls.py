# SPDX-License-Identifier: Apache-2.0
"""sysctl.d files, applied to a private root as a boot would."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

KERNEL_DEFAULTS = Path(__file__).with_name("kernel_defaults.conf")
DIRECTORIES = ("usr/lib/sysctl.d", "etc/sysctl.d")


def parse(text: str) -> Iterator[tuple[str, str]]:
    """Pairs of key and value; a line that is no assignment is skipped."""
    for line in text.splitlines():
        key, equals, value = line.strip().partition("=")
        if equals and key[0] not in "#;":
            yield key.strip().lstrip("-"), " ".join(value.split())


def file_of(root: Path, key: str) -> Path:
    """Where the run-time value of `net.core.somaxconn` is."""
    return root / "proc/sys" / key.replace(".", "/")


def write_defaults(root: Path) -> None:
    """Make /proc/sys as the kernel has it before anything of /etc is read."""
    for key, value in parse(KERNEL_DEFAULTS.read_text(encoding="utf-8")):
        path = file_of(root, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value + "\n", encoding="utf-8")


def apply_stored(root: Path) -> None:
    """What `sysctl --system` does: files in the order of their names, /etc before /usr/lib."""
    found = {
        path.name: path for directory in DIRECTORIES for path in (root / directory).glob("*.conf")
    }
    stored = [found[name] for name in sorted(found)]
    for path in [*stored, root / "etc/sysctl.conf"]:
        if path.is_file():
            _apply(root, path.read_text(encoding="utf-8", errors="replace"))


def _apply(root: Path, text: str) -> None:
    for key, value in parse(text):
        path = file_of(root, key)
        if path.is_file():
            path.write_text(value + "\n", encoding="utf-8")
