# SPDX-License-Identifier: Apache-2.0
"""What ethtool changes part by part: channels, rings, features and coalescing."""

import re
from typing import Callable, Dict, Iterator, List, Optional, Tuple, Union

from edgetune.agent.kinds import ethtool
from edgetune.agent.kinds.ethtool import rings, show, told_by_kernel
from edgetune.agent.kinds.nic import Channels, NicCounts, NicParts, driver_of
from edgetune.agent.kinds.nic_cpus import NicIrqAffinity
from edgetune.agent.kinds.nic_rss import NicRss, makes_table, refuse_out_of_step
from edgetune.agent.protocol import Failed, Unsupported, or_none
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.nic import (
    CHANNELS,
    COALESCE,
    FEATURES,
    NUMBERS,
    RING,
    RING_SIDES,
    SWITCHES,
)
from edgetune.agent.vocabulary.values import (
    Parts,
    Target,
    Value,
    counts,
    holds,
    merged,
    multiple_above,
    parts,
    power_above,
    power_below,
)


class NicCoalesce(NicParts):
    """How long an interface gathers packets before it interrupts: names as ``ethtool -C`` has them.

    ixgbe starts the interface anew where receive coalescing (LRO) comes or goes with it.
    """

    kind = COALESCE
    # A card tells two dozen of them; others may change without our doing.
    partly = True
    change = "-C"
    below = (NicRss, NicIrqAffinity)
    # They refuse a time while they adapt it by themselves; others take it, and adapt it then.
    refuse_while_adaptive = ("i40e", "iavf", "ice")

    def probe(self, setting: Setting) -> None:
        """Unsupported when the driver does not know one of them (it is ``n/a``), or refuses it."""
        interface, wanted = setting.target["interface"], parts(setting.value)
        now, known = parts(self.runtime(setting.target)), self._known(interface)
        missing = sorted(name for name in set(wanted) - set(known) if now.get(name) != wanted[name])
        if missing:
            raise Unsupported(f"{interface} has no coalescing {', '.join(missing)}")
        if driver_of(self.host, interface) in self.refuse_while_adaptive:
            for side in ("rx", "tx"):
                time, on = f"{side}-usecs", f"adaptive-{side}"
                changes = time in wanted and not self.same(now, {time: wanted[time]})
                if changes and now.get(on) == "on" and wanted.get(on) != "off":
                    raise Unsupported(
                        f"{time} cannot be set while {on} is on: turn that off as well"
                    )

    def runtime(self, target: Target) -> Value:
        """Everything the driver knows of coalescing; one that cannot adapt it does not."""
        self.queues(target)
        return {"adaptive-rx": "off", "adaptive-tx": "off", **self._known(target["interface"])}

    def _known(self, interface: str) -> Parts:
        found = told_by_kernel(self.host, "-c", interface, ethtool.coalescing)
        if found is not None:
            return found
        names = {*SWITCHES, *NUMBERS}
        pairs = coalescing(show(self.host, "-c", interface))
        return {name: part for name, part in pairs if name in names}

    def same(self, now: Value, wanted: Value) -> bool:
        """Some chips count in steps of 2 us: a time may be 1 us off, but 0 stands for none."""
        off_by_one: Parts = {
            name: part
            for name, part in counts(wanted).items()
            if "usecs" in name and part and 0 < counts(now).get(name, 0) in (part - 1, part + 1)
        }
        return holds(merged(now, off_by_one), wanted)

    def run(self, target: Target, wanted: Parts) -> None:
        """What adapts by itself goes first and comes last: with it on, times cannot be set."""
        last: Parts = {name: part for name, part in wanted.items() if part == "on"}
        super().run(target, {name: wanted[name] for name in wanted if name not in last})
        super().run(target, last)


def coalescing(text: str) -> Iterator[Tuple[str, Union[int, str]]]:
    """Names and values of what ``ethtool -c`` tells, without what is not available."""
    for line in text.splitlines():
        pair = re.fullmatch(r"(Adaptive|CQE mode) RX: (\S+) +TX: (\S+) *", line)
        if pair:
            name = pair.group(1).lower().replace(" ", "-")
            found = [(f"{name}-rx", pair.group(2)), (f"{name}-tx", pair.group(3))]
        else:
            name, _, value = line.partition(":")
            found = [(name, value.strip())]
        for name, value in found:
            if value.isdigit():
                yield name, int(value)
            elif value in ("on", "off"):
                yield name, value


class Feature:
    """One line of ``ethtool -k``; ``members`` are the features that a group stands for.

    What is ``requested`` is not in force while something that it needs is off.
    """

    def __init__(self, value: str, requested: str, fixed: bool) -> None:
        self.value = value
        self.requested = requested or value
        self.members: Dict[str, Feature] = {}
        self._fixed = fixed

    @property
    def fixed(self) -> bool:
        """Whether it cannot be changed; ethtool does not say so of groups."""
        inside = list(self.members.values())
        return all(member.fixed for member in inside) if inside else self._fixed


class NicFeatures(NicParts):
    """What an interface does by itself, such as {"ntuple-filters": "off"}.

    A change of ntuple-filters or LRO starts the interface anew with ixgbe, bnxt and others, and
    ntuple-filters mean two things: with ixgbe "on" puts an end to Flow Director's own sampling,
    with i40e, ice and mlx5 it is what accelerated RFS needs.
    """

    kind = FEATURES
    # An interface has some sixty of them.
    partly = True
    change = "-K"
    below = (NicCoalesce, NicRss, NicIrqAffinity)

    def probe(self, setting: Setting) -> None:
        """Unsupported when there is none of that name, or it is fixed."""
        interface = setting.target["interface"]
        known = self._features(setting.target)
        for name, value in parts(setting.value).items():
            if name not in known:
                raise Unsupported(f"{interface} has no feature {name}")
            if known[name].fixed and known[name].value != value:
                raise Unsupported(f"{interface} has {name} {known[name].value}, which is fixed")
            # virtio_net tells the device its table with it.
            if name == "receive-hashing" and known[name].value != value:
                NicRss(self.host).refuse_few_queues(setting.target)

    def runtime(self, target: Target) -> Value:
        """All of them."""
        return {name: own.value for name, own in self._features(target).items()}

    def own(self, target: Target) -> Parts:
        """The same, also what does not work for now."""
        return {name: own.requested for name, own in self._features(target).items()}

    def persistent(self, target: Target) -> Optional[Value]:
        """What is fixed stays so, whatever anybody said."""
        kept, known = super().persistent(target), or_none(self._features, target)
        if known is None:
            return kept
        return merged(kept, {name: own.value for name, own in known.items() if own.fixed})

    def put(self, target: Target, wanted: Parts) -> None:
        """The same; members rather than their group, which would change all of them alike."""
        known = self._features(target)
        for name, own in known.items():
            if own.members and set(own.members) <= set(wanted):
                wanted = {other: part for other, part in wanted.items() if other != name}
        super().put(target, wanted)

    def _features(self, target: Target) -> Dict[str, Feature]:
        self.queues(target)
        interface = target["interface"]
        told = told_by_kernel(self.host, "-k", interface, ethtool.features)
        return of_kernel(told) if told else of_text(show(self.host, "-k", interface))


def of_kernel(told: ethtool.Features) -> Dict[str, Feature]:
    """As ethtool shows them: several of one group below its name, a single one by that name."""
    groups: Dict[str, List[str]] = {}
    found: Dict[str, Feature] = {}
    for name in told.names:
        group = ethtool.group_of(name)
        if group:
            groups.setdefault(group, []).append(name)
        else:
            found[name] = _feature(told, name)
    for group, names in groups.items():
        members = {name: _feature(told, name) for name in names}
        if len(members) == 1:
            found[group] = members.popitem()[1]
            continue
        value = "on" if any(own.value == "on" for own in members.values()) else "off"
        found[group] = Feature(value, "", False)
        found[group].members = members
        found.update(members)
    return found


def _feature(told: ethtool.Features, name: str) -> Feature:
    fixed = name not in told.changeable
    value, wanted = ("on" if name in part else "off" for part in (told.active, told.wanted))
    return Feature(value, value if fixed else wanted, fixed)


def of_text(text: str) -> Dict[str, Feature]:
    """What ``ethtool -k`` tells."""
    found: Dict[str, Feature] = {}
    group = Feature("", "", False)
    line = r"^([ \t]*)([^\s:]+): (on|off)( \[fixed\])?(?: \[requested (on|off)\])?"
    for indent, name, value, fixed, requested in re.findall(line, text, re.MULTILINE):
        own = found[name] = Feature(value, requested, bool(fixed))
        if indent:
            group.members[name] = own
        else:
            group = own
    return found


class NicRing(NicCounts):
    """How many packets the rings of each queue hold; the link goes down while that changes."""

    kind = RING
    names = RING_SIDES
    show = "-g"
    change = "-G"
    what = "ring"
    of_kernel = staticmethod(rings)
    below = (NicFeatures, NicCoalesce, NicRss, NicIrqAffinity)
    # As their set_ringparam() does; every other driver takes a number as it is, or refuses it.
    rounding: Dict[Optional[str], Callable[[int], int]] = {
        "igb": multiple_above(8),
        "ixgbe": multiple_above(8),
        "i40e": multiple_above(32),
        "iavf": multiple_above(32),
        "ice": multiple_above(32),
        "mlx4_core": power_above,
        "mlx5_core": power_above,
        "ena": power_below,
    }

    def rounded(self, target: Target, value: Value) -> Value:
        """The number that the driver makes of it."""
        to_fit = self.rounding.get(driver_of(self.host, target["interface"]), int)
        return {name: to_fit(count) for name, count in counts(value).items()}


class NicChannels(Channels):
    """How many queues an interface has, such as {"combined": 4}; ethtool tells and changes it."""

    kind = CHANNELS
    below = (NicRing, NicFeatures, NicCoalesce, NicRss, NicIrqAffinity)

    def probe(self, setting: Setting) -> None:
        """Unsupported also when packets are spread, by somebody's choice, over queues that go.

        And where they would go on being spread over queues that are gone.
        """
        super().probe(setting)
        if NicRss(self.host).is_of_virtio(setting.target):
            refuse_out_of_step(self.host, setting.target["interface"])
        spread_anew = any(
            other.kind == NicRss.kind.name
            and other.target == setting.target
            and makes_table(other.value)
            for other in setting.siblings
        )
        needed = 0 if spread_anew else NicRss(self.host).queues_chosen(setting.target)
        left = self.receive_queues(setting)
        if needed > left:
            interface = setting.target["interface"]
            reason = f"the indirection table of {interface} needs {needed} queues, not {left}"
            raise Unsupported(f"{reason}: nic.rss in the same tuning can spread packets anew")

    def put(self, target: Target, wanted: Parts) -> None:
        """The same; the table of RSS gives way where it keeps queues from going.

        A table that was set, and not by default, holds on to its queues, and with bnxt to its
        size. Whoever changes the channels puts it back.
        """
        try:
            super().put(target, wanted)
        except Failed as why:
            if not NicRss(self.host).let_go(target, str(why)):
                raise
            super().put(target, wanted)
