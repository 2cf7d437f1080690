# SPDX-License-Identifier: Apache-2.0
"""What ethtool tells of interfaces, asked once until something is changed.

The kernel itself is asked for most of it, as ethtool asks it, without a process for each answer.
That takes Linux 5.8 or newer; the numbers are those of include/uapi/linux/ethtool_netlink.h,
netlink.h and genetlink.h. Where the kernel has no answer, or an odd one, there are OSError,
struct.error or KeyError. It says the same of an old kernel and of a card that lacks something: only
ethtool can tell them apart.
"""

import fcntl
import os
import struct
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import (
    TYPE_CHECKING,
    Callable,
    Dict,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Set,
    Tuple,
    TypeVar,
    Union,
)

from edgetune.agent.host import Host
from edgetune.agent.protocol import Failed, Unsupported
from edgetune.agent.vocabulary.kinds.nic_coalesce import NUMBERS, SWITCHES

if TYPE_CHECKING:
    import socket

# Of include/uapi/linux/sockios.h and ethtool.h.
SIOCETHTOOL = 0x8946
ETHTOOL_GRXFH = 0x29
FLOW_TYPES = {"tcp4": 1, "udp4": 2, "sctp4": 3, "tcp6": 5, "udp6": 6, "sctp6": 7}
DISCARD = 1 << 31
FIELDS = {"m": 1 << 1, "v": 1 << 2, "t": 1 << 3, "s": 1 << 4, "d": 1 << 5, "f": 1 << 6, "n": 1 << 7}
"""The letters of ``ethtool -N``, and their bits in ``struct ethtool_rxnfc``."""

UNSUPPORTED = "Operation not supported"

Question = Tuple[str, ...]
T = TypeVar("T")


def ask_kernel(host: Host, option: str, interface: str, ask: Callable[[str], T]) -> Optional[T]:
    """What the kernel tells where ethtool would be asked with ``option``; None without an answer.

    It is remembered as long as those of `show`. Below a private root there is no kernel to ask.
    """
    if host.root != "/":
        return None
    known: Dict[Question, object] = host.answers.setdefault(interface, {})
    question = ("kernel", option)
    if question not in known:
        try:
            known[question] = ask(interface)
        except (OSError, KeyError, struct.error):
            known[question] = None
    found: Optional[T] = known[question]  # type: ignore[assignment]
    return found


def show(host: Host, option: str, interface: str, *words: str) -> str:
    """What ethtool tells of an interface; Unsupported when it does not.

    The answer is remembered until ethtool changes that interface: each costs a process.
    """
    known: Dict[Question, object] = host.answers.setdefault(interface, {})
    question = (option, *words)
    if question not in known:
        try:
            known[question] = host.run("ethtool", option, interface, *words)
        except Failed as error:
            known[question] = error
    answer = known[question]
    if isinstance(answer, Failed):
        raise Unsupported(str(answer)) from None
    return str(answer)


def change(host: Host, option: str, interface: str, *words: str) -> None:
    """Have ethtool change an interface; Failed when it complains."""
    try:
        host.run("ethtool", option, interface, *words)
    finally:
        _doubt(host, interface)


def change_flow(host: Host, interface: str, flow: str, letters: str) -> None:
    """The same for the fields that are hashed of a flow."""
    words = ("-N", interface, "rx-flow-hash", flow, letters)
    status, _, complaint = host.attempt("ethtool", *words)
    _doubt(host, interface)
    # ethtool ends with status 0 also when the driver refused.
    if status or complaint.strip():
        raise Failed(f"ethtool {' '.join(words)}: {complaint.strip() or status}")


def _doubt(host: Host, interface: str) -> None:
    """Ask anew from now on; what a driver does not support it will not learn."""
    known = host.answers.get(interface, {})
    host.answers[interface] = {
        question: answer
        for question, answer in known.items()
        if isinstance(answer, Failed) and UNSUPPORTED in str(answer)
    }


def flow_fields(interface: str, flow: str) -> str:
    """The letters of the fields that are hashed of a flow, asked of the kernel; OSError without.

    As ``ethtool -n IF rx-flow-hash FLOW`` does, which would be a process for each flow.
    """
    import array
    import socket

    # struct ethtool_rxnfc, of which the kernel reads and writes the first three fields here.
    head = struct.pack("=IIQ", ETHTOOL_GRXFH, FLOW_TYPES[flow], 0)
    asked = array.array("B", head.ljust(256, b"\0"))
    request = struct.pack("16sP", interface.encode(), asked.buffer_info()[0]).ljust(40, b"\0")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCETHTOOL, request)
    data = struct.unpack_from("=IIQ", asked)[2]
    if data & DISCARD:
        return "r"
    return "".join(letter for letter, bit in FIELDS.items() if data & bit)


NETLINK_GENERIC = 16
CONTROLLER = 16
"""The family of the one that tells the numbers of the others."""
GET_FAMILY, FAMILY_ID, FAMILY_NAME = 3, 1, 2
REQUEST, ERROR = 1, 2
NESTED, KIND = 1 << 15, (1 << 14) - 1
HEADER, NAME_OF_DEVICE = 1, 2
SECONDS = 60.0
"""How long the kernel may take: it answers nobody while a driver changes an interface."""
LONGEST = 1 << 17

FEATURES, RINGS, CHANNELS, COALESCE = 11, 15, 17, 19
"""Messages that get something."""

MOST_OF_RING, IN_RING = {"rx": 2, "tx": 5}, {"rx": 6, "tx": 9}
MOST_CHANNELS = {"rx": 2, "tx": 3, "combined": 5}
PRESENT_CHANNELS = {"rx": 6, "tx": 7, "combined": 9}
GROUPS = {
    "rx-checksumming": "rx-checksum",
    "tx-checksumming": "tx-checksum-*",
    "scatter-gather": "tx-scatter-gather*",
    "tcp-segmentation-offload": "tx-tcp*-segmentation",
    "udp-fragmentation-offload": "tx-udp-fragmentation",
    "generic-segmentation-offload": "tx-generic-segmentation",
    "generic-receive-offload": "rx-gro",
    "large-receive-offload": "rx-lro",
    "rx-vlan-offload": "rx-vlan-hw-parse",
    "tx-vlan-offload": "tx-vlan-hw-insert",
    "ntuple-filters": "rx-ntuple-filter",
    "receive-hashing": "rx-hashing",
}
"""What ``ethtool -k`` calls the features of such names in the kernel (its ``off_flag_def``)."""

Counted = Tuple[Dict[str, int], Dict[str, int]]


def rings(interface: str) -> Counted:
    """How many packets the rings can hold, and do."""
    return _counted(RINGS, interface, MOST_OF_RING, IN_RING)


def channels(interface: str) -> Counted:
    """How many queues of each sort there can be, and are."""
    return _counted(CHANNELS, interface, MOST_CHANNELS, PRESENT_CHANNELS)


def coalescing(interface: str) -> Dict[str, Union[int, str]]:
    """What the driver knows of coalescing, by the names of ``ethtool -C``."""
    switches, numbers = ({kind: name for name, kind in t.items()} for t in (SWITCHES, NUMBERS))
    found: Dict[str, Union[int, str]] = {}
    for kind, value in _of(_answer(COALESCE, interface)):
        if kind in switches:
            found[switches[kind]] = "on" if value[0] else "off"
        elif kind in numbers:
            found[numbers[kind]] = _number(value)
    return found


class Features(NamedTuple):
    """Names of features in the kernel: all, those that can be changed, and what they are."""

    names: List[str]
    changeable: Set[str]
    wanted: Set[str]
    active: Set[str]


def features(interface: str) -> Features:
    """What an interface does by itself, and can."""
    sets = {
        kind: _bits(value) for kind, value in _of(_answer(FEATURES, interface)) if kind > HEADER
    }
    every, wanted, active, never = (sets[kind] for kind in (2, 3, 4, 5))
    changeable = {name for name, can in every.items() if can} - set(never)
    return Features([name for name in every if name], changeable, set(wanted), set(active))


@lru_cache(maxsize=512)
def group_of(name: str) -> str:
    """What ethtool calls the group of a feature of the kernel; "" for one of its own."""
    return next((group for group, like in GROUPS.items() if fnmatchcase(name, like)), "")


def _counted(command: int, interface: str, most: Dict[str, int], now: Dict[str, int]) -> Counted:
    attributes = dict(_of(_answer(command, interface)))
    maxima, present = (
        {name: _number(attributes[kind]) for name, kind in kinds.items() if kind in attributes}
        for kinds in (most, now)
    )
    return maxima, present


def _bits(bitset: bytes) -> Dict[str, bool]:
    """The bits that a set lists, by name; one without values lists those that are set."""
    found = {}
    parts = dict(_of(bitset))
    for _, bit in _of(parts[3]):
        fields = dict(_of(bit))
        found[fields[2].rstrip(b"\0").decode()] = 3 in fields
    return found


def _answer(command: int, interface: str) -> bytes:
    """The attributes of one answer."""
    device = _attribute(NAME_OF_DEVICE, interface.encode() + b"\0")
    with _connection() as connection:
        return _ask(connection, _family(), command, _attribute(HEADER | NESTED, device))


@lru_cache(maxsize=1)
def _family() -> int:
    with _connection() as connection:
        name = _attribute(FAMILY_NAME, b"ethtool\0")
        attributes = dict(_of(_ask(connection, CONTROLLER, GET_FAMILY, name)))
    return int(struct.unpack("=H", attributes[FAMILY_ID])[0])


def _connection() -> "socket.socket":
    import socket

    connection = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_GENERIC)
    connection.settimeout(SECONDS)
    return connection


def _ask(connection: "socket.socket", family: int, command: int, attributes: bytes) -> bytes:
    body = struct.pack("=BBH", command, 1, 0) + attributes
    connection.sendto(struct.pack("=IHHII", 16 + len(body), family, REQUEST, 1, 0) + body, (0, 0))
    message = connection.recv(LONGEST)
    size, kind = struct.unpack_from("=IH", message)
    if kind == ERROR:
        number = -struct.unpack_from("=i", message, 16)[0]
        raise OSError(number, os.strerror(number))
    if kind != family or size != len(message):
        raise OSError(f"the kernel answers {size} bytes of {kind} in {len(message)}")
    return message[20:]


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _of(attributes: bytes) -> Iterator[Tuple[int, bytes]]:
    """Kind and value of each."""
    at = 0
    while at < len(attributes):
        size, kind = struct.unpack_from("=HH", attributes, at)
        if size < 4 or at + size > len(attributes):
            raise OSError(f"the kernel tells of {size} bytes in {len(attributes) - at}")
        yield kind & KIND, attributes[at + 4 : at + size]
        at += (size + 3) & ~3


def _number(value: bytes) -> int:
    return int(struct.unpack("=I", value)[0])
