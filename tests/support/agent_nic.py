# SPDX-License-Identifier: Apache-2.0
"""Network cards for the agent: what ethtool says of each, and how its driver takes a change.

A `Card` stands for ethtool in this process, so that no program runs. Its texts have the form of
ethtool 6.1 over netlink, or of 4.8 over ioctl, for the drivers that edge servers have. The cards
are in ``agent_cards.yaml``.
"""

from __future__ import annotations

import contextlib
import copy
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgetune.agent.vocabulary.kinds.nic_coalesce import NUMBERS, SWITCHES
from tests.support.agent_cpus import Vectors
from tests.support.agent_programs import Answer, instead
from tests.support.agent_root import AgentRoot, NearRoot
from tests.support.agent_rss import Complaint, Rss
from tests.support.cases import table

QUEUES = "sys/class/net/eth0/queues"
TABLE = "proc/sys/net/core/rps_sock_flow_entries"


class NicHost(NearRoot):
    """A host whose agent is asked in this process, where ethtool is a `Card`; see ``insert``."""

    def __init__(self, path: Path, init: str = "sysv", patch: Any = None) -> None:
        super().__init__(path, init)
        self.patch = patch
        self.write(TABLE, "0\n")

    def insert(self, name: str, rss: Mapping[str, Any] | None = None, **changes: Any) -> Card:
        """Have a card: its queues, its driver, and every ethtool from now on."""
        return make_card(name, rss, **changes).install(self, self.patch)

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
            names = ("RX", "TX", "Other", "Combined")
            return self._counts("Channel", names, self.most_channels, self.channels)
        if option == "-g" and self.ring:
            names = ("RX", "RX Mini", "RX Jumbo", "TX")
            more = "RX Buf Len:\t\tn/a\nCQE Size:\t\tn/a\nTX Push:\toff\n"
            told = self._counts("Ring", names, self.most_ring, self.ring)
            return told + ("" if self.over_ioctl else more)
        if option == "-k":
            return self._features()
        if option == "-c" and self.coalesce:
            return self._coalescing()
        raise Complaint("netlink error: Operation not supported")

    @property
    def state(self) -> dict[str, Any]:
        """All that a change has to leave, or bring back."""
        names = ("channels", "ring", "coalesce", "requested")
        return {**{name: dict(getattr(self, name)) for name in names}, "rss": self.rss.state}

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

        names = list(NUMBERS)
        groups = [names[at : at + 4] for at in range(0, 20, 4)]
        rows = "\n".join("".join(f"{name}:\t{value(name)}\n" for name in own) for own in groups)
        more = "" if self.over_ioctl else "\n" + pair("CQE mode", "cqe-mode")
        return f"Coalesce parameters for eth0:\n{pair('Adaptive', 'adaptive')}{rows}{more}\n"

    def _counts(
        self, what: str, names: Sequence[str], most: dict[str, int], now: dict[str, int]
    ) -> str:
        def rows(of: dict[str, int]) -> str:
            none = 0 if self.over_ioctl else "n/a"
            return "".join(f"{name}:\t\t{of.get(name.lower(), none)}\n" for name in names)

        text = f"{what} parameters for eth0:\nPre-set maximums:\n{rows(most)}"
        return f"{text}Current hardware settings:\n{rows(now)}"

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


FITS: dict[str, Callable[[int], int]] = {
    "any": int,
    "up 8": _upwards(8),
    "up 32": _upwards(32),
    "power": _power,
    "power below": lambda number: _power(number, True),
}
_CARDS = table(Path(__file__).with_name("agent_cards.yaml"))


def make_card(name: str, rss: Mapping[str, Any] | None = None, **changes: Any) -> Card:
    """A card by its name in ``agent_cards.yaml``, of which some things are otherwise."""
    own = {**_CARDS[name], **changes}
    key = own.get("rss", {}).get("key", 0)
    of_rss = {**own.pop("rss", {"there": False}), "key": _key(key), **(rss or {})}
    fits = FITS[own.pop("fits", "any")]
    return Card(**copy.deepcopy(own), fits=fits, rss=Rss(**copy.deepcopy(of_rss)))


def _key(size: int) -> str:
    return ":".join(f"{7 * number % 256:02x}" for number in range(size))


Make = Callable[[], Card]


def _maker(name: str) -> Make:
    def make() -> Card:
        return make_card(name)

    make.__name__ = name
    return make


CARDS: tuple[Make, ...] = tuple(
    map(_maker, ("ixgbe", "i40e", "ice", "mlx5", "bnxt", "ena", "virtio"))
)
ixgbe, i40e, ice, mlx5, bnxt, ena, virtio = CARDS
veth = _maker("veth")
