# SPDX-License-Identifier: Apache-2.0
"""What settings of several kinds are set on, and what they touch by that.

And the units that no tuning changes, because a host could be cut off without them.
"""

import re
from typing import Callable, Optional, Sequence

from edgetune.agent.vocabulary.kind import Field
from edgetune.agent.vocabulary.values import Target

SERVICE_NAME = r"[A-Za-z0-9][A-Za-z0-9@:._-]{0,199}"

INTERFACE = Field(
    r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}",
    'Name of a network interface, or `"*"` for every one that carries traffic and is up.',
)
SERVICE = Field(
    SERVICE_NAME,
    "Name of a systemd service without `.service`. The service is restarted unless `restart` "
    "names another one.",
)


def unit_name(service: str) -> str:
    """The full name of a service's unit."""
    return service if service.endswith(".service") else f"{service}.service"


def properties_of(*names: str) -> Callable[[Target], Sequence[str]]:
    """What touches these properties of the service."""
    return lambda target: [property_of(target["service"], name) for name in names]


def property_of(service: str, name: str) -> str:
    """The thing that a property of a service is, however the service is spelt."""
    return f"property {unit_name(service)} {name}"


def sysctl_path(key: str) -> str:
    """``net/ipv4/conf/eth0.1/forwarding`` for both ways to write that key (see sysctl.d(5))."""
    first = next((char for char in key if char in "./"), "/")
    return key if first == "/" else key.translate(str.maketrans("./", "/."))


def parameter(key: str) -> str:
    """The file of a kernel parameter."""
    return "/proc/sys/" + sysctl_path(key)


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
