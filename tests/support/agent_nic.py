# SPDX-License-Identifier: Apache-2.0
"""Network cards for the agent: what ethtool says of each, and how its driver takes a change.

A `Card` stands for ethtool in this process, so that no program runs. Its texts have the form of
ethtool 6.1 over netlink, or of 4.8 over ioctl, for the drivers that edge servers have.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edgetune.vocabulary.kinds.nic_coalesce import NUMBERS, SWITCHES
from tests.support import agent_rss
from tests.support.agent_cpus import Vectors
from tests.support.agent_programs import Answer, instead
from tests.support.agent_root import AgentRoot, NearRoot
from tests.support.agent_rss import Complaint, Rss

QUEUES = "sys/class/net/eth0/queues"
TABLE = "proc/sys/net/core/rps_sock_flow_entries"


class NicHost(NearRoot):
    """A host whose agent is asked in this process, where ethtool is a `Card`."""

    def __init__(self, path: Path, init: str = "sysv") -> None:
        super().__init__(path, init)
        self.write(TABLE, "0\n")

    def hook_files(self) -> list[str]:
        """What keeps the boot hook."""
        return [name for name in self.tree() if name.endswith("S99edgetune")]


def steer(host: NicHost) -> None:
    """Let something steer packets to every queue there is."""
    for path in (host.path / QUEUES).glob("*/*"):
        path.write_text("3\n" if path.name.endswith("cpus") else "2048\n")


CHECKSUMS = ("tx-checksum-ipv4", "tx-checksum-ip-generic", "tx-checksum-sctp")
SEGMENTATION = ("tx-tcp-segmentation", "tx-tcp6-segmentation")
GROUPS = {"tx-checksumming": CHECKSUMS, "tcp-segmentation-offload": SEGMENTATION}
SINGLE = (
    "rx-checksumming",
    "generic-receive-offload",
    "large-receive-offload",
    "ntuple-filters",
    "receive-hashing",
    "tx-udp_tnl-segmentation",
)
LEAVES = (*CHECKSUMS, *SEGMENTATION, *SINGLE)


@dataclass
class Card:
    """One interface, eth0. ``fits`` is what its driver makes of a ring's size.

    ``coalesce`` holds what the driver knows of it; times are multiples of ``counts_in`` us, and
    with ``adaptive_alone`` none can be set while it adapts them by itself.
    ``resets`` are the options of ethtool that start it anew: coalescing is at its defaults then.
    A ring of which the card has none is not in ``ring``. ``busy`` refuses every change.
    """

    driver: str
    channels: dict[str, int]
    most_channels: dict[str, int]
    ring: dict[str, int]
    most_ring: dict[str, int]
    fits: Callable[[int], int] = int
    over_ioctl: bool = False
    resets: Sequence[str] = ()
    coalesce: dict[str, int | str] = field(default_factory=dict)
    counts_in: int = 1
    fixed: Sequence[str] = ()
    on: Sequence[str] = ("rx-checksumming", "generic-receive-offload", *CHECKSUMS, *SEGMENTATION)
    adaptive_alone: bool = False
    rss: Rss = field(default_factory=Rss)
    busy: bool = False
    lies: bool = False
    root: AgentRoot | None = None
    vectors: Vectors | None = None
    calls: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.defaults = dict(self.coalesce)
        # Of what there could be, none is told as 0.
        self.channels = {**dict.fromkeys(self.most_channels, 0), **self.channels}
        self.rss = replace(self.rss)
        self.rss.resize(self.rings)
        self.requested = {name: "on" if name in self.on else "off" for name in LEAVES}

    @property
    def rings(self) -> int:
        """The receive queues."""
        return self.channels.get("rx", 0) + self.channels.get("combined", 0)

    def install(self, root: AgentRoot, patch: Any) -> Card:
        """Be the card of a host: its queues, its driver, and every ethtool from now on."""
        self.stand_in(root)
        return instead(patch, self)

    def stand_in(self, root: AgentRoot, vectors: Vectors | None = None) -> None:
        """The same, without ethtool; ``vectors`` are interrupts that come and go with queues."""
        self.root, self.vectors = root, vectors
        if self.driver != "veth":
            driver = root.path / "sys/class/net/eth0/device/driver"
            driver.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                driver.symlink_to(f"../../../../bus/pci/drivers/{self.driver}")
        self.make_queues()

    def make_queues(self) -> None:
        """All queues are new ones: nothing steers packets to them."""
        assert self.root
        shutil.rmtree(self.root.path / QUEUES)
        for number in range(self.rings):
            for file in (f"rx-{number}/rps_cpus", f"rx-{number}/rps_flow_cnt"):
                self.root.write(f"{QUEUES}/{file}", "0\n")
        for number in range(self.channels.get("tx", 0) + self.channels.get("combined", 0)):
            self.root.write(f"{QUEUES}/tx-{number}/xps_cpus", "0\n")
        if self.vectors:
            self.vectors.queues = self.rings
            self.vectors.request()

    def attempt(self, program: str, option: str, interface: str, *words: str) -> Answer:
        """As Host.attempt."""
        assert program == "ethtool"
        self.calls.append(" ".join((option, *words)))
        if interface != "eth0":
            return 1, "", "netlink error: Operation not supported"
        try:
            if option.isupper():
                return 0, self.change(option, list(words)), ""
            return 0, self.show(option, *words), ""
        except Complaint as complaint:
            return 0 if option == "-N" else 1, "", str(complaint)

    @property
    def changes(self) -> list[str]:
        """The calls that change something."""
        return [call for call in self.calls if call[1].isupper()]

    def show(self, option: str, *words: str) -> str:
        """The text for -l, -g, ..."""
        if option == "-x":
            return self.rss.show(self.rings, self.over_ioctl)
        if option == "-n":
            assert words[0] == "rx-flow-hash"
            return self.rss.show_fields(words[1])
        if option == "-l":
            return self._counts(
                "Channel", ("RX", "TX", "Other", "Combined"), self.most_channels, self.channels
            )
        if option == "-g" and self.ring:
            names = ("RX", "RX Mini", "RX Jumbo", "TX")
            more = (
                "" if self.over_ioctl else "RX Buf Len:\t\tn/a\nCQE Size:\t\tn/a\nTX Push:\toff\n"
            )
            return self._counts("Ring", names, self.most_ring, self.ring) + more
        if option == "-k":
            return self._features()
        if option == "-c" and self.coalesce:
            return self._coalescing()
        raise Complaint("netlink error: Operation not supported")

    @property
    def features(self) -> dict[str, str]:
        """What is in force: TCP segmentation needs a checksum of any protocol."""
        found = dict(self.requested)
        if found["tx-checksum-ip-generic"] == "off":
            found.update(dict.fromkeys(SEGMENTATION, "off"))
        return found

    def _features(self) -> str:
        now = self.features

        def row(name: str, indent: str = "") -> str:
            asked = "" if now[name] == self.requested[name] else " [requested on]"
            return f"{indent}{name}: {now[name]}{' [fixed]' if name in self.fixed else asked}\n"

        rows = [row(name) for name in SINGLE]
        for group, members in GROUPS.items():
            any_on = "on" if "on" in [now[name] for name in members] else "off"
            rows.append(f"{group}: {any_on}\n" + "".join(row(name, "\t") for name in members))
        return "Features for eth0:\n" + "".join(rows)

    def set_features(self, wanted: dict[str, str]) -> None:
        before = dict(self.requested)
        for name, word in wanted.items():
            if name not in (*LEAVES, *GROUPS):
                raise Complaint("netlink error: bit name not found (offset 52)")
            for leaf in GROUPS.get(name, (name,)):
                if leaf not in self.fixed:
                    self.requested[leaf] = word
        if self.requested == before:
            raise Complaint("Could not change any device features")

    def _coalescing(self) -> str:
        def value(name: str) -> int | str:
            none = ("off" if name in SWITCHES else 0) if self.over_ioctl else "n/a"
            return self.coalesce.get(name, none)

        def pair(title: str, name: str) -> str:
            return f"{title} RX: {value(name + '-rx')}  TX: {value(name + '-tx')}\n"

        groups = [NUMBERS[at : at + 4] for at in range(0, 20, 4)]
        rows = "\n".join("".join(f"{name}:\t{value(name)}\n" for name in own) for own in groups)
        more = "" if self.over_ioctl else "\n" + pair("CQE mode", "cqe-mode")
        return f"Coalesce parameters for eth0:\n{pair('Adaptive', 'adaptive')}{rows}{more}\n"

    def _counts(
        self, what: str, names: Sequence[str], most: dict[str, int], now: dict[str, int]
    ) -> str:
        def rows(of: dict[str, int]) -> str:
            none = 0 if self.over_ioctl else "n/a"
            return "".join(f"{name}:\t\t{of.get(name.lower(), none)}\n" for name in names)

        return (
            f"{what} parameters for eth0:\nPre-set maximums:\n{rows(most)}"
            f"Current hardware settings:\n{rows(now)}"
        )

    def change(self, option: str, words: list[str]) -> str:
        """Take -L, -G, ... as the driver does; the defaults come back where it starts anew."""
        if self.busy:
            raise Complaint("netlink error: Device or resource busy")
        if option == "-X":
            self.rss.change(words, self.rings)
            return ""
        if option == "-N":
            assert words[0] == "rx-flow-hash"
            self.rss.set_fields(words[1], words[2])
            return ""
        wanted = dict(zip(words[::2], words[1::2]))
        setters = {
            "-L": self.set_channels,
            "-G": self.set_ring,
            "-C": self.set_coalesce,
            "-K": self.set_features,
        }
        if not self.lies:
            setters[option](wanted)
        if option in self.resets:
            self.reset(option)
        return ""

    def reset(self, option: str) -> None:
        """Start anew: queues are new ones, and all that was not set just now is at its default."""
        self.make_queues()
        self.rss.restart(self.rings)
        if option != "-C":
            self.coalesce = dict(self.defaults)
        if option == "-L":
            self.requested["ntuple-filters"] = "off"

    def set_coalesce(self, wanted: dict[str, str]) -> None:
        unknown = set(wanted) - set(self.coalesce)
        if unknown:
            raise Complaint("netlink error: unsupported coalesce parameters")
        if self.over_ioctl and all(str(self.coalesce[name]) == wanted[name] for name in wanted):
            raise Complaint("no coalesce parameters changed, aborting")
        for side in ("rx", "tx"):
            adapts = wanted.get(f"adaptive-{side}", self.coalesce.get(f"adaptive-{side}"))
            if self.adaptive_alone and adapts == "on" and f"{side}-usecs" in wanted:
                raise Complaint("netlink error: Invalid argument")
        for name, text in wanted.items():
            times = _upwards(self.counts_in if "usecs" in name else 1)
            self.coalesce[name] = times(int(text)) if text.isdigit() else text

    def set_channels(self, wanted: dict[str, str]) -> None:
        self._refuse_same(wanted, self.channels, "channels")
        for name, number in wanted.items():
            if int(number) > self.most_channels.get(name, 0):
                raise Complaint("netlink error: requested channel count exceeds maximum")
        then = {**self.channels, **{name: int(number) for name, number in wanted.items()}}
        self.rss.resize(then.get("rx", 0) + then.get("combined", 0))
        self.channels.update(then)
        self.make_queues()

    def set_ring(self, wanted: dict[str, str]) -> None:
        self._refuse_same(wanted, self.ring, "ring")
        for name, number in wanted.items():
            if int(number) > self.most_ring.get(name, 0):
                raise Complaint("netlink error: requested ring size exceeds maximum")
            self.ring[name] = self.fits(int(number))

    def _refuse_same(self, wanted: dict[str, str], now: dict[str, int], what: str) -> None:
        """What older versions of ethtool do when a value is there already (exit status 80)."""
        for name, number in wanted.items():
            if self.over_ioctl and now.get(name) == int(number):
                raise Complaint(f"{name} unmodified, ignoring; no {what} parameters changed")


def _upwards(step: int) -> Callable[[int], int]:
    return lambda number: number + -number % step


def _power(number: int, down: bool = False) -> int:
    power = 1
    while power < number:
        power *= 2
    return power // 2 if down and power > number else power


ADAPTIVE: dict[str, int | str] = {"adaptive-rx": "on", "adaptive-tx": "on"}


def ixgbe() -> Card:
    both = {"rx": 512, "tx": 512}
    most = {"rx": 4096, "tx": 4096}
    return Card(
        "ixgbe",
        {"combined": 4},
        {"combined": 16},
        both,
        most,
        _upwards(8),
        over_ioctl=True,
        resets=["-L", "-G", "-K", "-C"],
        coalesce={"rx-usecs": 1, "tx-usecs": 0},
        rss=agent_rss.IXGBE,
    )


def i40e() -> Card:
    both = {"rx": 512, "tx": 512}
    return Card(
        "i40e",
        {"combined": 4},
        {"combined": 8},
        both,
        {"rx": 4096, "tx": 4096},
        _upwards(32),
        resets=["-L", "-G"],
        coalesce={
            **ADAPTIVE,
            "rx-usecs": 50,
            "tx-usecs": 50,
            "rx-usecs-high": 0,
            "rx-frames-irq": 256,
        },
        counts_in=2,
        adaptive_alone=True,
        fixed=["large-receive-offload", "tx-checksum-ipv4"],
        rss=agent_rss.I40E,
    )


def ice() -> Card:
    both = {"rx": 2048, "tx": 256}
    return Card(
        "ice",
        {"combined": 4},
        {"rx": 8, "tx": 8, "combined": 8},
        both,
        {"rx": 8160, "tx": 8160},
        _upwards(32),
        resets=["-L", "-G"],
        coalesce={**ADAPTIVE, "rx-usecs": 50, "tx-usecs": 50, "rx-usecs-high": 0},
        adaptive_alone=True,
        fixed=["large-receive-offload", "tx-checksum-ipv4"],
        rss=agent_rss.ICE,
    )


def mlx5() -> Card:
    both = {"rx": 1024, "tx": 1024}
    return Card(
        "mlx5_core",
        {"combined": 6},
        {"combined": 8},
        both,
        {"rx": 8192, "tx": 8192},
        _power,
        coalesce={
            **ADAPTIVE,
            "rx-usecs": 8,
            "rx-frames": 128,
            "tx-usecs": 8,
            "tx-frames": 128,
            "cqe-mode-rx": "on",
            "cqe-mode-tx": "off",
        },
        rss=agent_rss.MLX5,
    )


def bnxt() -> Card:
    both = {"rx": 511, "tx": 511}
    return Card(
        "bnxt_en",
        {"combined": 3},
        {"rx": 4, "tx": 4, "combined": 8},
        both,
        {"rx": 2047, "tx": 2047},
        resets=["-L", "-G", "-K"],
        coalesce={
            "adaptive-rx": "on",
            "rx-usecs": 10,
            "rx-frames": 15,
            "rx-usecs-irq": 1,
            "rx-frames-irq": 1,
            "tx-usecs": 28,
            "tx-frames": 30,
            "stats-block-usecs": 1000000,
        },
        rss=agent_rss.BNXT,
    )


def ena() -> Card:
    both = {"rx": 1024, "tx": 512}
    most = {"rx": 8192, "tx": 1024}
    return Card(
        "ena",
        {"combined": 2},
        {"combined": 8},
        both,
        most,
        lambda number: _power(number, True),
        coalesce={"adaptive-rx": "on", "rx-usecs": 0, "tx-usecs": 64},
        fixed=["large-receive-offload", "ntuple-filters", "tx-checksum-sctp", *CHECKSUMS],
        rss=agent_rss.ENA,
    )


def virtio() -> Card:
    both = {"rx": 256, "tx": 256}
    return Card(
        "virtio_net",
        {"combined": 1},
        {"combined": 1},
        both,
        dict(both),
        coalesce={
            "adaptive-rx": "off",
            "rx-usecs": 0,
            "rx-frames": 1,
            "tx-usecs": 0,
            "tx-frames": 1,
        },
        fixed=["large-receive-offload", "ntuple-filters", "receive-hashing"],
        rss=agent_rss.VIRTIO,
    )


def virtio_rss(stale: bool = False) -> Card:
    """With RSS in the device; ``stale`` as before Linux 6.12."""
    return replace(
        virtio(),
        channels={"combined": 4},
        most_channels={"combined": 4},
        fixed=["large-receive-offload", "ntuple-filters"],
        rss=replace(agent_rss.VIRTIO_RSS, stale=stale),
    )


def veth() -> Card:
    """Has channels, and nothing else that ethtool could change."""
    return Card("veth", {"rx": 4, "tx": 4}, {"rx": 4, "tx": 4}, {}, {})


Make = Callable[[], Card]
CARDS: tuple[Make, ...] = (ixgbe, i40e, ice, mlx5, bnxt, ena, virtio)
