# SPDX-License-Identifier: Apache-2.0
"""The releases of FreeBSD that a simulated host can have, and how they differ."""

from __future__ import annotations

from pathlib import Path

KERNELS = {"13": "13.3-RELEASE-p7", "14": "14.1-RELEASE-p5"}
RELEASES = tuple(KERNELS)
"""By the number that people say."""

NEXT = {"13": "13.3-p8", "14": "14.1-p6"}
"""The boot environment that somebody has prepared; `oca_kernel` names that of 14."""

# They need a kernel with TCPHPTS, which 14.1 has.
_SINCE_14 = ("tcp_rack.ko", "tcp_bbr.ko")


def become(root: Path, release: str) -> None:
    """Make a disk of the image that of a host with this release."""
    with (root / "stub/parameters.txt").open("a", encoding="utf-8") as parameters:
        parameters.write(f"kern.osrelease fixed {KERNELS[release]}\n")
    if release == "13":
        for module in _SINCE_14:
            (root / "boot/kernel" / module).unlink()
