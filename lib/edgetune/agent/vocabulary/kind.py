# SPDX-License-Identifier: Apache-2.0
"""What is known of a kind of setting without a host."""

import re
from typing import Any, Callable, List, Mapping, NamedTuple, Optional, Sequence, Union

from edgetune.agent.vocabulary import SYSTEMS
from edgetune.agent.vocabulary.grammar import Parts, Text
from edgetune.agent.vocabulary.values import Target, Value


class Field(NamedTuple):
    """One of the fields that say what a setting sets.

    ``refusal`` tells why no tuning may have a text that matches ``pattern``; None where one may.
    """

    pattern: str
    meaning: str
    refusal: Callable[[str], Optional[str]] = lambda text: None


def named_in(target: Target) -> List[str]:
    """The fields of a target, such as ``interface eth0``."""
    return [f"{field} {text}" for field, text in target.items()]


class Kind(NamedTuple):
    """A kind of setting; the agent's class of that name carries it out.

    name        -- as tunings and requests have it, such as ``nic.ring``
    target      -- the fields that say what is set, in the order in which an id has them
    value       -- the grammar of values
    touches     -- everything that a setting changes on a host, downstream included: absolute
                   paths of files, and names such as ``interface eth0``; two settings that touch
                   one thing stand on each other; by default what ``target`` names
    disruption  -- what it asks of a host at least (``DISRUPTIONS``)
    order       -- its place in the order of application; lower numbers come first, and what
                   resets others comes before them; settings are taken back in the reverse order
    summary, takes, example -- for people: what it is, what its values are, a setting of it
    ordered     -- whether ``only: raise`` and ``only: lower`` mean something
    by_bmc      -- whether the BMC sets it, and no agent
    systems     -- the operating systems whose hosts have it (of ``SYSTEMS``); what a BMC sets
                   does not depend on it
    tidy        -- brings a value that fits the grammar into its one form; Wrong where it cannot be
    """

    name: str
    target: Mapping[str, Field]
    value: Union[Text, Parts]
    disruption: str
    order: int
    summary: str
    takes: str
    example: Mapping[str, Any]
    touches: Callable[[Target], Sequence[str]] = named_in
    ordered: bool = False
    by_bmc: bool = False
    systems: Sequence[str] = ("linux",)
    tidy: Callable[[Target, Value], Value] = lambda target, value: value

    def id_of(self, target: Mapping[str, str]) -> str:
        """Names a setting on a host, such as ``sysctl:net.core.somaxconn``."""
        what = ".".join(target[field] for field in self.target)
        return f"{self.name}:{what}" if what else self.name

    def refusal_on(self, system: str) -> Optional[str]:
        """Why hosts with an operating system do not have it; None where they do."""
        if self.by_bmc or system in self.systems:
            return None
        known = " and ".join(SYSTEMS[name] for name in self.systems)
        return f"{self.name} is for {known}, and this host runs {SYSTEMS.get(system, system)}"

    def can_cut_off(self, target: Target) -> bool:
        """Whether a setting can take its host off the network."""
        return any(NETWORK.match(thing) for thing in self.touches(target))

    def is_tried_by_a_boot(self, target: Target) -> bool:
        """Whether the next boot tries it once, and a confirmation makes it last."""
        return BOOT_ENTRY in self.touches(target)

    def read(self, target: Target, value: object) -> Value:
        """The value of a request in its one form; Wrong says what is wrong with it."""
        return self.tidy(target, self.value.read(value))

    def of_text(self, target: Target, written: object) -> Value:
        """The value of a text, or of the texts of its parts, as a request has it; Wrong likewise.

        What `read` makes of it is left to the host, but for what is wrong with it.
        """
        value = self.value.of_text(written)
        self.tidy(target, value)
        return value


EXPERIMENTAL = ("freebsd",)
"""The systems on which nobody has run the agent yet but with doubles of its programs."""

DISRUPTIONS = ("live", "restart", "drain", "reboot")
"""What a setting asks of a host, least first."""

BOOT_ENTRY = "boot entry"
"""The thing that kernel and command line are parts of."""

NETWORK = re.compile(f"(interface|route|module) |{BOOT_ENTRY}$|/proc/sys/net/|/sys/(.*/)?net/")
"""How the things begin whose change can cut a host off."""


def kind_of(id: str) -> str:
    """The name of the kind in the id of a setting."""
    return id.partition(":")[0]


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
