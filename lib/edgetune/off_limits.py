# SPDX-License-Identifier: Apache-2.0
"""Units and files that no tuning changes; each host refuses them, too, and knows more of them."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

# As in hosts/agent/kinds/protected.py, which has to stand alone; a test compares them.
PROTECTED = (
    r"sshd?|dropbear|sssd|nslcd"
    r"|messagebus|dbus.*|systemd-.*|edgetune.*"
    r"|network.*|NetworkManager.*|ifup.*|wicked.*|netplan.*|cloud-.*|connman.*|dhc(pcd|lient).*"
    r"|wpa_supplicant|wg-quick|openvpn.*|strongswan.*|ipsec|tailscaled|openvswitch.*|ovs.*|teamd"
    r"|frr|bird6?|zebra|bgpd|gobgpd?|exabgp|quagga|keepalived|vrrpd"
    r"|firewalld|nftables|ip6?tables|netfilter-persistent|ufw|shorewall6?"
)
"""Names of units, without suffix and instance, by which a host is reached and brought back."""

# As in hosts/agent/kinds/file.py.
PLACES = (
    *("/proc", "/sys", "/dev", "/run", "/tmp"),
    *("/boot", "/efi", "/etc/fstab", "/etc/crypttab", "/etc/ld.so.preload"),
    *("/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow"),
    *("/etc/ssh", "/etc/dropbear", "/etc/pam.d", "/etc/sudoers", "/etc/sudoers.d"),
    *("/var/lib/edgetune", "/var/lib/edgetune-not-ready"),
)
"""Where no tuning writes: files, and directories with all that is below them."""


def unit_refusal(unit: str) -> str | None:
    """Why no tuning changes a unit, such as ``sshd@1.service``; None when one may."""
    protected = re.fullmatch(rf"({PROTECTED})(@.*)?\.[a-z]+", unit)
    return f"{unit} is needed to reach the host" if protected else None


def path_refusal(path: str) -> str | None:
    """Why no tuning writes a file; None when one may, as far as can be said without a host."""
    file = PurePosixPath(path)
    for place in map(PurePosixPath, PLACES):
        if place in (file, *file.parents):
            return f"no tuning writes below {place}"
    return "is edgetune's own" if file.name.startswith("90-edgetune-") else None
