# SPDX-License-Identifier: Apache-2.0
"""What the namespaced lab needs of the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

SYSTEM_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
PACKAGES = {
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "haproxy": "haproxy",
    "nginx": "nginx-light",
    "ip": "iproute2",
    "tc": "iproute2",
    "ethtool": "ethtool",
    "busybox": "busybox",
    "sysctl": "procps",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "python3": "python3",
}
# Of a lab with Prometheus alone.
MONITORING = {
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "prometheus-node-exporter": "prometheus-node-exporter",
    "prometheus-alertmanager": "prometheus-alertmanager",
}
# Of a lab with machines alone.
MACHINES = {
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "sfdisk": "fdisk",
}
# Of an anycast PoP alone.
ANYCAST = {"bird": "bird2", "nft": "nftables"}
TUN = Path("/dev/net/tun")
NGINX_ECHO = Path("/usr/lib/nginx/modules/ngx_http_echo_module.so")
PROBE = ("unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--time", "--fork", "true")


def missing_packages(
    prometheus: bool = False, machines: bool = False, anycast: bool = False
) -> list[str]:
    """Debian packages to install before a lab can run, with these or without; sorted."""
    needed = {**PACKAGES, **(MONITORING if prometheus else {}), **(MACHINES if machines else {})}
    needed.update(ANYCAST if anycast else {})
    found = {command: shutil.which(command, path=SYSTEM_PATH) for command in needed}
    packages = {needed[command] for command, path in found.items() if path is None}
    if not NGINX_ECHO.exists():
        packages.add("libnginx-mod-http-echo" if found["nginx"] else "nginx-light")
    return sorted(packages)


def missing_requirements(
    prometheus: bool = False, machines: bool = False, anycast: bool = False
) -> list[str]:
    """Reasons and Debian packages that keep the namespaced lab from running here; [] is good.

    `prometheus`, `machines`, `anycast`: those for a lab with them.
    """
    if not sys.platform.startswith("linux"):
        return ["Linux"]
    packages = missing_packages(prometheus, machines, anycast)
    if os.geteuid() != 0:
        return ["root", *packages]
    if machines and not TUN.exists():
        return [*packages, str(TUN)]
    return packages or _missing_rights()


def has_nic_queue() -> bool:
    """Whether an ifb device can be made without the machine loading the module for it."""
    return Path("/sys/module/ifb").exists() or Path("/sys/class/net/ifb0").exists()


def _missing_rights() -> list[str]:
    done = subprocess.run(PROBE, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return [f"the right to make namespaces ({done.stderr.strip()})"] if done.returncode else []
