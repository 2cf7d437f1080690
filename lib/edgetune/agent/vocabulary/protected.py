# SPDX-License-Identifier: Apache-2.0
"""Units that no tuning changes, because a host could be cut off without them."""

import re
from typing import Optional

PROTECTED = (
    r"sshd?|dropbear|sssd|nslcd"
    r"|messagebus|dbus.*|systemd-.*|edgetune.*"
    r"|network.*|NetworkManager.*|ifup.*|wicked.*|netplan.*|cloud-.*|connman.*|dhc(pcd|lient).*"
    r"|wpa_supplicant|wg-quick|openvpn.*|strongswan.*|ipsec|tailscaled|openvswitch.*|ovs.*|teamd"
    r"|frr|bird6?|zebra|bgpd|gobgpd?|exabgp|quagga|keepalived|vrrpd"
    r"|firewalld|nftables|ip6?tables|netfilter-persistent|ufw|shorewall6?"
)
"""Units, by name without suffix and instance, by which a host is reached and brought back.

That is: who lets people in, the bus and systemd's own, ourselves, who sets up addresses, links,
bridges and tunnels, who announces and learns routes, and who filters packets (starting it can
shut us out, and stopping it lays the host open).
"""

SUFFIX = r"\.(service|socket|timer|path|target|mount|slice|scope|swap|device|automount)"


def is_protected(unit: str) -> bool:
    """Whether a unit, such as ``sshd@1.service``, is one of ``PROTECTED``."""
    stem = re.sub(f"{SUFFIX}$", "", unit).partition("@")[0]
    return bool(re.fullmatch(PROTECTED, stem))


def unit_refusal(unit: str) -> Optional[str]:
    """Why no tuning changes a unit; None when one may."""
    return f"{unit} is needed to reach the host" if is_protected(unit) else None
