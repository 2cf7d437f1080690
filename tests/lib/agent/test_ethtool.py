# SPDX-License-Identifier: Apache-2.0
"""How often ethtool is asked, which costs a process each time, and what the kernel tells itself.

That is the same as ethtool tells, and never a part of it.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from edgetune.agent.host import Host
from edgetune.agent.kinds import ethtool
from edgetune.agent.kinds.ethtool import ask_kernel
from edgetune.agent.kinds.nic import Channels
from edgetune.agent.kinds.nic_coalesce import NicCoalesce
from edgetune.agent.kinds.nic_features import of_kernel
from edgetune.agent.kinds.nic_ring import NicRing
from edgetune.agent.kinds.nic_rss import NicRss
from edgetune.agent.kinds.nic_rss import show as shown_to_rss
from edgetune.agent.protocol import Failed, Unsupported
from tests.support import agent_nic
from tests.support.agent_nic import Card, NicHost
from tests.support.agent_root import setting, thp

ETH0 = {"interface": "eth0"}
EVERY_PART = [
    setting("nic.channels", ETH0, {"combined": 2}),
    setting("nic.ring", ETH0, {"rx": 1024}),
    setting("nic.rss", ETH0, {"equal": 2}),
    setting("nic.features", ETH0, {"generic-receive-offload": "off"}),
    setting("nic.coalesce", ETH0, {"adaptive-rx": "off", "rx-usecs": 40}),
    setting("nic.xps", ETH0, "0-1"),
    setting("nic.rps", ETH0, "0-1"),
    thp("never"),
]


@pytest.fixture
def host(tmp_path: Path) -> NicHost:
    return NicHost(tmp_path / "host")


@pytest.fixture
def card(host: NicHost, monkeypatch: pytest.MonkeyPatch) -> Card:
    return agent_nic.i40e().install(host, monkeypatch)


def questions(card: Card) -> list[str]:
    """What it was asked, but for the fields of flows, which the kernel is asked for on a host."""
    return [call for call in card.calls if call[1].islower() and not call.startswith("-n")]


def test_a_boot_asks_little_of_a_card(
    host: NicHost, card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.apply(*EVERY_PART)
    booted = agent_nic.i40e().install(host, monkeypatch)
    host.new_boot_id()
    assert host.boot_hook() == []
    # Twenty of more than a hundred: each change makes what was known of the card doubtful.
    assert len(booted.changes) == 4 and len(questions(booted)) <= 20
    booted.calls.clear()
    assert host.boot_hook() == [] and len(questions(booted)) <= 5


def test_what_was_changed_is_asked_anew(host: NicHost, card: Card) -> None:
    own = Host(str(host.path))
    before = ethtool.show(own, "-l", "eth0")
    assert ethtool.show(own, "-l", "eth0") == before and card.calls == ["-l"]
    ethtool.change(own, "-L", "eth0", "combined", "2")
    assert ethtool.show(own, "-l", "eth0") != before
    card.busy = True
    with pytest.raises(Failed, match="busy"):
        ethtool.change(own, "-L", "eth0", "combined", "1")
    ethtool.show(own, "-l", "eth0")
    assert card.calls.count("-l") == 3, "a driver may have done half of it"
    card.calls.clear()
    for _ in range(2):
        with own.lock():
            ethtool.show(own, "-l", "eth0")
            ethtool.show(own, "-l", "eth0")
    assert card.calls == ["-l", "-l"], "with the lock it is asked anew"


def test_a_question_without_an_answer_is_not_asked_again(host: NicHost, card: Card) -> None:
    own = Host(str(host.path))
    for _ in range(2):
        with pytest.raises(Unsupported, match="Operation not supported"):
            ethtool.show(own, "-g", "eth1")
    assert card.calls == ["-g"] and shown_to_rss is ethtool.show
    with pytest.raises(Failed):
        ethtool.change(own, "-G", "eth1", "rx", "512")
    with pytest.raises(Unsupported):
        ethtool.show(own, "-g", "eth1")
    assert card.calls.count("-g") == 1, "no driver learns it"


def test_what_is_proven_is_asked_anew(
    host: NicHost, card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    show = card.show

    def forget_soon(option: str, *words: str) -> str:
        """A card that takes its channels back once they were read after the change."""
        told = show(option, *words)
        if option == "-l" and card.changes:
            card.channels["combined"] = 4
        return told

    wanted = host.change(EVERY_PART[0])
    monkeypatch.setattr(card, "show", forget_soon)
    error = host.fail("apply", **wanted)
    assert error["message"].startswith("nic.channels:eth0: differs now: is {'combined': 4}")


class Kernel:
    """The kernel behind SIOCETHTOOL; ``data`` are the fields that it hashes."""

    def __init__(self, data: int) -> None:
        self.data = data
        self.asked: list[tuple[str, int, int]] = []

    def ioctl(self, descriptor: Any, number: int, request: bytes) -> bytes:
        assert number == 0x8946 and len(request) >= 40
        name, address = struct.unpack_from("16sP", request)
        command, flow, _ = struct.unpack("=IIQ", ctypes.string_at(address, 16))
        self.asked.append((name.rstrip(b"\0").decode(), command, flow))
        if self.data < 0:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        ctypes.memmove(address + 8, struct.pack("=Q", self.data), 8)
        return request


@pytest.mark.parametrize(
    ("data", "letters"),
    [(0, ""), (0x30, "sd"), (0xF0, "sdfn"), (0x0E, "mvt"), (1 << 31, "r"), (0x31, "sd")],
)
def test_the_kernel_tells_the_fields_of_a_flow(
    card: Card, monkeypatch: pytest.MonkeyPatch, data: int, letters: str
) -> None:
    # RXH_* of include/uapi/linux/ethtool.h.
    kernel = Kernel(data)
    monkeypatch.setattr(ethtool.fcntl, "ioctl", kernel.ioctl)
    assert ethtool.flow_fields("enp0s2", "udp6") == letters
    assert kernel.asked == [("enp0s2", 0x29, 6)]
    handler = NicRss(Host("/"))
    assert handler._fields("eth0", "tcp4") == letters
    monkeypatch.setattr(ethtool.fcntl, "ioctl", Kernel(-1).ioctl)
    with pytest.raises(Unsupported, match="the hash of tcp4: Operation not supported"):
        NicRss(Host("/"))._fields("eth0", "tcp4")
    assert not card.calls


# Run in a namespace of its own, where nothing but what it makes can be seen.
COMPARE = """
import json, subprocess, sys
sys.path[:0] = json.loads(sys.argv[1])
from edgetune.agent.host import Host
from edgetune.agent.kinds.ethtool import features
from edgetune.agent.kinds.nic import Channels
from edgetune.agent.kinds.nic_features import of_kernel, of_text

def told(known):
    return {name: [own.value, own.requested, own.fixed, sorted(own.members)]
            for name, own in known.items()}

def ethtool(*words):
    return subprocess.run(["ethtool", *words], capture_output=True, text=True, check=True).stdout

ip = "ip link add card numtxqueues 4 numrxqueues 4 type veth peer name other"
subprocess.run(ip.split(), check=True)
ethtool("-K", "card", "tx", "off")
found = {}
for name in ("lo", "card", "other"):
    kernel = of_kernel(features(name))
    found[name] = [told(kernel), told(of_text(ethtool("-k", name)))]
own = Channels(Host("/"))
found["channels"] = [list(own.read("card")), list(own._read_text("card"))]
print(json.dumps(found))
"""


@pytest.mark.processes
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ethtool"), reason="needs root, ethtool")
def test_the_kernel_tells_what_ethtool_shows() -> None:
    path = json.dumps([str(entry) for entry in sys.path if entry])
    words = ["unshare", "--net", sys.executable, "-c", COMPARE, path]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for what, (kernel, shown) in found.items():
        assert kernel == shown, what
    lo, card = found["lo"][0], found["card"][0]
    assert len(lo) > 40 and lo["loopback"][2] and not card["tx-checksumming"][2]
    assert card["tx-checksumming"][0] == "off" and card["tx-checksumming"][3]
    assert found["channels"][0] == [{"rx": 4, "tx": 4}, {"rx": 4, "tx": 4}]


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def numbers(told: Mapping[int, int]) -> bytes:
    header = attribute(1 | 1 << 15, attribute(2, b"eth0\0"))
    return header + b"".join(attribute(kind, struct.pack("=I", told[kind])) for kind in told)


def bits(told: Mapping[str, bool], listed: bool = True) -> bytes:
    """A set of bits; one that lists only those that are set has no values."""
    found = b""
    for index, (name, value) in enumerate(told.items()):
        own = attribute(1, struct.pack("=I", index)) + attribute(2, name.encode() + b"\0")
        own += attribute(3, b"") if listed and value else b""
        found += attribute(1 | 1 << 15, own) if listed or value else b""
    return attribute(3 | 1 << 15, found)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> dict[int, bytes]:
    """The answer to each message; there is none to the others."""
    answers: dict[int, bytes] = {}

    def answer(command: int, interface: str) -> bytes:
        if command not in answers:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return answers[command]

    monkeypatch.setattr(ethtool, "_answer", answer)
    return answers


def test_what_the_kernel_leaves_out_is_absent_and_no_zero(kernel: dict[int, bytes]) -> None:
    kernel[ethtool.RINGS] = numbers({2: 256, 6: 128})
    assert ethtool.rings("eth0") == ({"rx": 256}, {"rx": 128})
    kernel[ethtool.CHANNELS] = numbers({4: 1, 5: 4, 8: 1, 9: 2})
    assert ethtool.channels("eth0") == ({"combined": 4}, {"combined": 2})
    switches = attribute(11, b"\1") + attribute(25, b"\0")
    kernel[ethtool.COALESCE] = numbers({2: 0, 6: 40}) + switches
    found = {"rx-usecs": 0, "tx-usecs": 40, "adaptive-rx": "on", "cqe-mode-rx": "off"}
    assert ethtool.coalescing("eth0") == found


def test_features_are_named_as_by_ethtool(kernel: dict[int, bytes]) -> None:
    every = {"tx-checksum-ipv4": True, "": True, "tx-checksum-sctp": False, "rx-gro": True}
    every.update({"tx-tcp-segmentation": True, "tx-tcp6-segmentation": True, "highdma": True})
    active = {"tx-checksum-ipv4": True, "highdma": True, "tx-tcp6-segmentation": True}
    wanted = {**active, "rx-gro": True}
    sets = [bits(every), bits(wanted, False), bits(active, False), bits({"highdma": True}, False)]
    kernel[ethtool.FEATURES] = numbers({}) + b"".join(
        attribute(kind | 1 << 15, own) for kind, own in enumerate(sets, 2)
    )
    found = of_kernel(ethtool.features("eth0"))
    seen = {name: (own.value, own.requested, own.fixed) for name, own in found.items()}
    assert "" not in seen and "rx-gro" not in seen
    assert seen["generic-receive-offload"] == ("off", "on", False)
    assert seen["tx-checksumming"] == ("on", "on", False)
    assert seen["tx-checksum-sctp"] == ("off", "off", True)
    assert seen["highdma"] == ("on", "on", True), "it is never changed"
    members = {"tx-tcp-segmentation", "tx-tcp6-segmentation"}
    assert set(found["tcp-segmentation-offload"].members) == members
    assert "udp-fragmentation-offload" not in seen


@pytest.mark.parametrize(
    "told", [b"\0\0\0\0", attribute(6, struct.pack("=I", 5))[:-2], attribute(6, b"\1"), b"\x08\0"]
)
def test_an_answer_that_is_cut_short_is_none(kernel: dict[int, bytes], told: bytes) -> None:
    kernel[ethtool.RINGS] = told
    assert ask_kernel(Host("/"), "-g", "eth0", ethtool.rings) is None
    # A switch is then neither on nor off.
    kernel[ethtool.COALESCE] = numbers({2: 40}) + struct.pack("=HHB", 6, 11, 1)
    assert ask_kernel(Host("/"), "-c", "eth0", ethtool.coalescing) is None


READERS: list[tuple[str, Callable[[Host], Any], str, Any]] = [
    ("-l", lambda host: Channels(host).read("eth0").current, "Combined:\t3\n", {"combined": 3}),
    ("-g", lambda host: NicRing(host).read("eth0").current, "RX:\t512\n", {"rx": 512}),
    ("-c", lambda host: NicCoalesce(host)._known("eth0"), "rx-usecs: 9\n", {"rx-usecs": 9}),
]


def test_where_the_kernel_has_no_answer_ethtool_is_asked(
    kernel: dict[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    for option, read, line, found in READERS:
        asked = []

        def run(host: Host, *words: str, asked: Any = asked, line: str = line) -> str:
            asked.append(words)
            return f"Pre-set maximums:\nCurrent hardware settings:\n{line}"

        monkeypatch.setattr(Host, "run", run)
        assert read(Host("/")) == found
        assert asked == [("ethtool", option, "eth0")]


def test_below_a_private_root_no_kernel_is_asked(kernel: dict[int, bytes]) -> None:
    kernel[ethtool.RINGS] = numbers({2: 256, 6: 128})
    assert ask_kernel(Host("/tmp"), "-g", "eth0", ethtool.rings) is None
    assert ask_kernel(Host("/"), "-g", "eth0", ethtool.rings)


def test_what_the_kernel_told_is_asked_anew_after_a_change(
    kernel: dict[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host("/")
    kernel[ethtool.CHANNELS] = numbers({5: 4, 9: 4})
    assert Channels(host).read("eth0").current == {"combined": 4}

    def run(host: Host, name: str, *words: str) -> str:
        kernel[ethtool.CHANNELS] = numbers({5: 4, 9: 2})
        return ""

    monkeypatch.setattr(Host, "run", run)
    Channels(host).run({"interface": "eth0"}, {"combined": 2})
    assert Channels(host).read("eth0").current == {"combined": 2}
