# SPDX-License-Identifier: Apache-2.0
"""What ethtool tells of interfaces, asked once until something is changed."""

import fcntl
import struct
from typing import Dict, Tuple

from edgetune.agent.host import Host
from edgetune.agent.protocol import Failed, Unsupported

# Of include/uapi/linux/sockios.h and ethtool.h.
SIOCETHTOOL = 0x8946
ETHTOOL_GRXFH = 0x29
FLOW_TYPES = {"tcp4": 1, "udp4": 2, "sctp4": 3, "tcp6": 5, "udp6": 6, "sctp6": 7}
DISCARD = 1 << 31
FIELDS = {"m": 1 << 1, "v": 1 << 2, "t": 1 << 3, "s": 1 << 4, "d": 1 << 5, "f": 1 << 6, "n": 1 << 7}
"""The letters of ``ethtool -N``, and their bits in ``struct ethtool_rxnfc``."""

UNSUPPORTED = "Operation not supported"

Question = Tuple[str, ...]


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
