# SPDX-License-Identifier: Apache-2.0
"""What the kinds that belong to a network interface share."""

import contextlib
import os
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple, Type

from edgetune.agent.host import Host, decode
from edgetune.agent.kinds import HookKept, held, texts
from edgetune.agent.kinds.ethtool import change, show
from edgetune.agent.protocol import Json, Unsupported
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.nic_channels import KIND, TYPES
from edgetune.agent.vocabulary.values import Parts, Target, Value, bounded, counts, holds, parts

# Of include/uapi/linux/if.h.
IFF_UP = 1


class NicHandler(HookKept):
    """What belongs to a network interface: changing its queues resets all the rest."""

    # The kinds that a change may reset; they are put back like what steers packets to queues.
    below: Tuple[Type["NicHandler"], ...] = ()

    def state(self, target: Target) -> object:
        """Its state, without what is downstream; Unsupported where there is none."""
        return self.snapshot(target)

    def restore_state(self, target: Target, was: object) -> None:
        """Change what differs from ``state``, as far as it is still there."""
        self.restore(target, was)

    def present(self, target: Target) -> bool:
        return self.host.exists(self._directory(target))

    def is_up(self, target: Target) -> bool:
        """Whether somebody has brought it up, which may be long after it appeared."""
        flags = self.host.text(f"{self._directory(target)}/flags", "0x1")
        return self.host.exists(self._directory(target)) and bool(int(flags, 16) & IFF_UP)

    def queues(self, target: Target) -> List[str]:
        """Its receive and transmit queues, such as ``rx-0``; Unsupported without an interface."""
        if not self.present(target):
            raise Unsupported(f"there is no interface {target['interface']}")
        return self.host.names(f"{self._directory(target)}/queues")

    def read_steering(self, target: Target, names: Sequence[str]) -> Dict[str, str]:
        """The text of those files of its queues that can be read, by ``rx-0/rps_cpus``."""
        files = [f"{queue}/{name}" for queue in self.queues(target) for name in names]
        texts = {}
        for file in files:
            with contextlib.suppress(OSError):
                texts[file] = decode(self.host.read(f"{self._directory(target)}/queues/{file}"))
        return texts

    def restore_steering(self, target: Target, was: Dict[str, str]) -> None:
        """Write what differs, into the queues that there are."""
        now = self.read_steering(target, sorted({file.split("/")[1] for file in was}))
        for file, text in was.items():
            if file in now and now[file] != text:
                self.host.write_attribute(f"{self._directory(target)}/queues/{file}", text)

    def read_below(self, target: Target) -> Json:
        """What is downstream, by kind; without what the interface does not have."""
        states = {}
        for handler in self.below:
            with contextlib.suppress(Unsupported):
                states[handler.kind.name] = handler(self.host).state(target)
        return states

    def restore_below(self, target: Target, was: object) -> None:
        """Change what differs from what ``read_below`` found."""
        known = held(was)
        for handler in self.below:
            if handler.kind.name in known:
                handler(self.host).restore_state(target, known[handler.kind.name])

    def _directory(self, target: Target) -> str:
        return f"/sys/class/net/{target['interface']}"


class NicParts(NicHandler):
    """What ethtool shows of an interface as named parts, and changes part by part."""

    change = ""
    steering = ("rps_cpus", "rps_flow_cnt", "xps_cpus")

    def same(self, now: Value, wanted: Value) -> bool:
        return holds(now, wanted)

    def snapshot(self, target: Target) -> Dict[str, object]:
        """All its parts, and whatever a driver that starts the interface anew may reset."""
        return {
            "parts": self.state(target),
            "below": self.read_below(target),
            "steering": self.read_steering(target, self.steering),
        }

    def apply(self, target: Target, value: Value) -> None:
        """Change what differs; everything downstream stays as it is."""
        self.restore(target, dict(self.snapshot(target), parts=value))

    def restore(self, target: Target, snapshot: object) -> None:
        """Give the interface its parts back, and all that is downstream; KeyError without one."""
        was, below, steering = (held(snapshot)[name] for name in ("parts", "below", "steering"))
        self.put(target, parts(was))
        self.restore_below(target, below)
        self.restore_steering(target, texts(steering))

    def restore_state(self, target: Target, was: object) -> None:
        self.put(target, parts(was))

    def put(self, target: Target, wanted: Parts) -> None:
        """Change the parts that differ: some versions of ethtool complain of the others."""
        now = self.state(target)
        self.run(target, {name: part for name, part in wanted.items() if now.get(name) != part})

    def state(self, target: Target) -> Parts:
        """What was asked of the interface, which need not be in force."""
        return parts(self.runtime(target))

    def run(self, target: Target, wanted: Parts) -> None:
        """Let ethtool change parts, if there are any, in one go; Failed when it complains."""
        words = [str(word) for part in wanted.items() for word in part]
        if words:
            change(self.host, self.change, target["interface"], *words)


class Counts(NamedTuple):
    """How many of each there can be, and are, such as ``{"rx": 4}``."""

    max: Dict[str, int]
    current: Dict[str, int]


class NicCounts(NicParts):
    """Parts that are numbers, each with a maximum that the interface tells."""

    names: Tuple[str, ...] = ()
    show = ""
    what = ""

    def probe(self, setting: Setting) -> None:
        """Unsupported when the interface has none of that name, or not so many."""
        interface = setting.target["interface"]
        most = self.read(interface).max
        for name, count in counts(setting.value).items():
            if count > most.get(name, 0):
                most_of_it = f"at most {most[name]}" if most.get(name) else "no"
                raise Unsupported(f"{interface} has {most_of_it} {name} {self.what}")

    def runtime(self, target: Target) -> Value:
        """The present number of each that the interface has."""
        self.queues(target)
        counts = self.read(target["interface"])
        return {name: count for name, count in counts.current.items() if counts.max.get(name)}

    def read(self, interface: str) -> Counts:
        """What ethtool shows; Unsupported without an answer."""
        counts = Counts({}, {})
        part = counts.max
        for line in show(self.host, self.show, interface).splitlines():
            name, _, number = line.partition(":")
            if name.startswith("Current"):
                part = counts.current
            elif name.lower() in self.names and number.strip().isdigit():
                part[name.lower()] = int(number)
        if not counts.current:
            raise Unsupported(f"ethtool {self.show} {interface} tells no {self.what}")
        return counts


def driver_of(host: Host, interface: str) -> Optional[str]:
    """The name of an interface's driver; None without a device."""
    link = host.path(f"/sys/class/net/{interface}/device/driver")
    return os.path.basename(os.readlink(link)) if os.path.islink(link) else None


class Channels(NicCounts):
    """What is read of channels; what a change of them resets is for NicChannels to know."""

    names = TYPES
    show = "-l"
    change = "-L"
    what = "channels"

    def receive_queues(self, setting: Setting) -> int:
        """How many receive queues there will be."""
        now = self.runtime(setting.target)
        then = {**counts(now), **counts(bounded(setting.only, now, setting.value))}
        return then.get("rx", 0) + then.get("combined", 0)


def queues_planned(host: Host, setting: Setting) -> Optional[int]:
    """The receive queues that the same tuning gives an interface; None where it says nothing."""
    for other in setting.siblings:
        if other.kind == KIND.name and other.target == setting.target:
            return Channels(host).receive_queues(other)
    return None
