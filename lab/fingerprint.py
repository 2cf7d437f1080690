# SPDX-License-Identifier: Apache-2.0
"""Everything a tuning may leave on a host, as one digest a path: to prove that nothing was left.

Also runs on a host itself, as `python3 - ROOT` with this file on its standard input.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

TREES = ("etc", "var/lib/edgetune")
SETTINGS = (
    "proc/sys/net/core/somaxconn",
    "proc/sys/net/ipv4/tcp_slow_start_after_idle",
    "sys/kernel/mm/transparent_hugepage/enabled",
    "sys/class/net/eth0/queues/rx-0/rps_cpus",
)
# The epoch is the fence against older owners: it only ever grows. So do counters of the access log.
KEPT = (
    *("var/lib/edgetune/epoch", "var/lib/edgetune/congestion-epoch"),
    "var/lib/edgetune/access_log.json",
)


def fingerprint(root: Path) -> dict[str, str]:
    """Digest of kind, mode, owner and content of everything below the trees, by path."""
    paths = [path for tree in TREES for path in sorted((root / tree).rglob("*"))]
    paths += [root / name for name in SETTINGS if (root / name).exists()]
    found = {str(path.relative_to(root)): _digest(path) for path in paths if not path.is_dir()}
    return {name: digest for name, digest in found.items() if name not in KEPT}


def _digest(path: Path) -> str:
    about = path.lstat()
    content = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
    parts = (oct(about.st_mode), about.st_uid, about.st_gid, content)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


if __name__ == "__main__":
    print(json.dumps(fingerprint(Path(sys.argv[1]))))
