# SPDX-License-Identifier: Apache-2.0
"""How often ethtool is asked, which costs a process each time, and the kernel of flows."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgetune.agent.host import Host
from edgetune.agent.kinds import ethtool
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
READ = """
import json, subprocess, sys
sys.path[:0] = json.loads(sys.argv[1])
from edgetune.agent.host import Host
from edgetune.agent.kinds.ethtool import show
from edgetune.agent.kinds.nic import Channels
from edgetune.agent.kinds.nic_features import shown

ip = "ip link add card numtxqueues 4 numrxqueues 4 type veth peer name other"
subprocess.run(ip.split(), check=True)
subprocess.run("ethtool -K card tx off".split(), check=True, stdout=subprocess.DEVNULL)
known = shown(show(Host("/"), "-k", "card"))
features = {name: [own.value, own.fixed, len(own.members)] for name, own in known.items()}
print(json.dumps([features, Channels(Host("/")).read("card")]))
"""


@pytest.mark.processes
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ethtool"), reason="needs root, ethtool")
def test_a_real_ethtool_is_read() -> None:
    path = json.dumps([str(entry) for entry in sys.path if entry])
    words = ["unshare", "--net", sys.executable, "-c", READ, path]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    features, channels = json.loads(done.stdout)
    assert len(features) > 40 and features["large-receive-offload"] == ["off", True, 0]
    off, fixed, members = features["tx-checksumming"]
    assert (off, fixed) == ("off", False) and members > 1
    assert channels == [{"rx": 4, "tx": 4}, {"rx": 4, "tx": 4}]
