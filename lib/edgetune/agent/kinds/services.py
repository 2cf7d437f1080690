# SPDX-License-Identifier: Apache-2.0
"""Units of systemd, and the properties, CPUs and NUMA nodes with which services are started."""

import contextlib
import re
from typing import Dict, List, Optional, Sequence, Set, Tuple

from edgetune.agent.host import Host
from edgetune.agent.interrupts import interrupts_of
from edgetune.agent.journal import Journal
from edgetune.agent.kinds import FileKept, Handler, drop_ins, header, later, texts
from edgetune.agent.protocol import Failed, Unsupported, or_none
from edgetune.agent.readings import cpus_of_threads, interfaces, processes_of
from edgetune.agent.topology import Topology, cpus_that_serve, memory_nodes, named, refuse_nodes
from edgetune.agent.vocabulary.kind import is_protected, unit_name
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.memory import MASK, NUMA_POLICY, POLICY
from edgetune.agent.vocabulary.kinds.services import CPU_AFFINITY, CPUS_PROPERTY, PROPERTY, UNIT
from edgetune.agent.vocabulary.places import SYSTEMD
from edgetune.agent.vocabulary.values import (
    Parts,
    Target,
    Value,
    format_cpus,
    holds,
    parse_cpus,
    parts,
)

LIMITS = {
    "LimitAS": "Max address space",
    "LimitCORE": "Max core file size",
    "LimitCPU": "Max cpu time",
    "LimitDATA": "Max data size",
    "LimitFSIZE": "Max file size",
    "LimitLOCKS": "Max file locks",
    "LimitMEMLOCK": "Max locked memory",
    "LimitMSGQUEUE": "Max msgqueue size",
    "LimitNICE": "Max nice priority",
    "LimitNOFILE": "Max open files",
    "LimitNPROC": "Max processes",
    "LimitRSS": "Max resident set",
    "LimitRTPRIO": "Max realtime priority",
    "LimitRTTIME": "Max realtime timeout",
    "LimitSIGPENDING": "Max pending signals",
    "LimitSTACK": "Max stack size",
}
"""The limits of a process: as systemd calls them, and as /proc/PID/limits does."""


class ServiceProperty(FileKept):
    """A property of a service's unit, such as LimitNOFILE; it takes effect with a restart."""

    kind = PROPERTY
    # Below SYSTEMD/SERVICE.service.d
    drop_in = "90-edgetune-{rank}.conf"
    roots = tuple(f"{top}/systemd/system" for top in ("/etc", "/run", "/usr/lib", "/lib"))
    # Where /proc/PID tells what the main process has: systemd tells what it would start it with.
    running = {
        "CPUAffinity": ("status", r"^Cpus_allowed_list:\s*(\S+)"),
        "Nice": ("stat", r"[\s\S]*\)(?: \S+){16} (\S+)"),
        **{name: ("limits", rf"^{text} +(\S+) +(\S+)") for name, text in LIMITS.items()},
    }

    def probe_stored(self, setting: Setting, tuning: str) -> None:
        """Unsupported when a drop-in that is read after ours decides."""
        self.refuse_overridden(setting.target, tuning)

    def refuse_overridden(self, target: Target, tuning: str) -> None:
        """Unsupported when a drop-in that is read after ours sets a property."""
        winner = self._winner(target)
        ours = self._ours(target, self.rank(tuning))
        if winner and winner[0].endswith(".conf") and later(winner[0], ours):
            raise Unsupported(f"{winner[0]} is read after ours and sets it to {winner[1]}")

    def runtime(self, target: Target) -> Value:
        """Its effective value; ``soft:hard`` for a limit whose two halves differ."""
        name = target["property"]
        of_process = name in self.running
        return self._normal(name, (self._has if of_process else self._show)(target, name))

    def persistent(self, target: Target) -> Optional[Value]:
        winner = self._winner(target)
        return winner[1] if winner else None

    def files(self, journal: Journal, settings: List[Setting]) -> Dict[str, str]:
        content: Dict[str, str] = {}
        for setting in settings:
            name = self._ours(setting.target, journal.rank)
            text = content.get(name) or header(journal) + "[Service]\n"
            # Several assignments of a set of CPUs add up, unless an empty one comes between.
            if setting.target["property"] == "CPUAffinity":
                text += "CPUAffinity=\n"
            content[name] = text + f"{setting.target['property']}={setting.value}\n"
        return content

    def reload(self) -> None:
        self.host.run("systemctl", "daemon-reload")

    def _show(self, target: Target, name: str) -> str:
        try:
            # Not --value: systemd has that from version 230 on only.
            text = self.host.run("systemctl", "show", "-p", name, target["service"])
        except Failed as error:
            raise Unsupported(str(error)) from None
        key, _, value = text.strip().partition("=")
        if key != name or not value:
            raise Unsupported(f"systemctl tells no {name} of {target['service']}")
        return value.replace("18446744073709551615", "infinity")

    def _has(self, target: Target, name: str) -> str:
        file, pattern = self.running[name]
        text = self.host.text(f"/proc/{self._show(target, 'MainPID')}/{file}")
        found = re.search(pattern, text, re.MULTILINE)
        if found is None:
            raise Unsupported(f"{target['service']} has no main process that tells its {name}")
        values = dict.fromkeys(found.groups())
        return ":".join(values).replace("unlimited", "infinity")

    def _normal(self, name: str, value: str) -> str:
        if name == "CPUAffinity":
            with contextlib.suppress(ValueError):
                return format_cpus(parse_cpus(value))
        return " ".join(value.split())

    def _winner(self, target: Target) -> Optional[Tuple[str, str]]:
        """File and value of the assignment that decides; an empty one takes all back."""
        unit, name = unit_name(target["service"]), target["property"]
        units = [f"{root}/{unit}" for root in self.roots if self.host.exists(f"{root}/{unit}")]
        found = None
        for file in units[:1] + drop_ins(self.host, [f"{root}/{unit}.d" for root in self.roots]):
            for line in self.host.text(file).splitlines():
                key, equals, value = line.partition("=")
                if equals and key.strip() == name:
                    value = self._normal(name, value)
                    found = (file, value) if value else None
        return found

    def _ours(self, target: Target, rank: str) -> str:
        name = self.drop_in.format(rank=rank)
        return f"{SYSTEMD}/{unit_name(target['service'])}.d/{name}"


OLDEST = 243
"""The first systemd that knows both."""


class MemoryNumaPolicy(ServiceProperty):
    """The NUMA nodes on which a service gets the memory that it asks for after its restart.

    ``interleave`` (over all that have any), ``preferred:0``, ``bind:0-1``, ``local`` or
    ``default``.
    """

    kind = NUMA_POLICY
    drop_in = "90-edgetune-{rank}.numa.conf"

    def rounded(self, target: Target, value: Value) -> Value:
        """The nodes in their shortest form."""
        word, _, nodes = str(value).partition(":")
        return named(self.host, word, nodes)

    def probe(self, setting: Setting) -> None:
        """Unsupported with an old systemd, with one node only, and for nodes without memory."""
        if len(memory_nodes(self.host)) < 2:
            raise Unsupported("the host has memory on one NUMA node only")
        refuse_nodes(self.host, str(setting.value))
        try:
            version = self.host.run("systemctl", "--version")
        except Failed as error:
            raise Unsupported(str(error)) from None
        found = re.match("systemd ([0-9]+)", version)
        if not found or int(found.group(1)) < OLDEST:
            raise Unsupported(f"{POLICY} needs systemd {OLDEST} or newer")

    def probe_stored(self, setting: Setting, tuning: str) -> None:
        for name in (POLICY, MASK):
            self.refuse_overridden({**setting.target, "property": name}, tuning)

    def runtime(self, target: Target) -> Value:
        """What systemd starts it with."""
        word = self._show(target, POLICY)
        if word in ("n/a", "default", "local"):
            return "local" if word == "local" else "default"
        return named(self.host, word, self._show(target, MASK))

    def prove(self, setting: Setting) -> None:
        """Failed when the main process tells of another policy: it may choose one itself."""
        own = self._of_process(setting.target)
        if own and own != self.rounded(setting.target, setting.value):
            raise Failed(f"the main process has {own}")

    def _of_process(self, target: Target) -> Optional[str]:
        # The kernel walks all pages of the process for it, which meanwhile gets no new memory.
        maps = self.host.text(f"/proc/{self._show(target, 'MainPID')}/numa_maps")
        found = re.search(
            r"^\S+ (default|local|prefer|bind|interleave)(?::(\S+))? .*(?:heap|stack)", maps, re.M
        )
        if found is None:
            return None
        word = "preferred" if found.group(1) == "prefer" else found.group(1)
        return named(self.host, word, found.group(2) or "")

    def persistent(self, target: Target) -> Optional[Value]:
        policy, mask = (self._winner({**target, "property": name}) for name in (POLICY, MASK))
        return named(self.host, policy[1], mask[1] if mask else "") if policy else None

    def files(self, journal: Journal, settings: List[Setting]) -> Dict[str, str]:
        """Several assignments of a mask add up, unless an empty one comes between."""
        content = {}
        for setting in settings:
            word, _, nodes = str(setting.value).partition(":")
            lines = [f"{POLICY}={word}", f"{MASK}="]
            if word not in ("local", "default"):
                lines.append(f"{MASK}={nodes or 'all'}")
            text = header(journal) + "\n".join(["[Service]", *lines, ""])
            content[self._ours(setting.target, journal.rank)] = text
        return content


class CpuServiceAffinity(ServiceProperty):
    """The CPUs of a service: all but those that serve interrupts of network cards.

    ``off_nic_irqs`` leaves out these CPUs, ``off_nic_cores`` their hyper-threads, too. Each thread
    of the service is looked at: a program may choose CPUs itself.
    """

    kind = CPU_AFFINITY
    drop_in = "90-edgetune-{rank}.cpus.conf"

    def probe(self, setting: Setting) -> None:
        """Unsupported without interrupts to keep off, or when too few CPUs would be left."""
        cpus_left(self.host, setting)

    def probe_stored(self, setting: Setting, tuning: str) -> None:
        self.refuse_overridden({**setting.target, "property": CPUS_PROPERTY}, tuning)

    def runtime(self, target: Target) -> Value:
        """The CPUs of its main process; of threads that have others, too (``4-7; 0 in 77/79``)."""
        found: Dict[str, str] = {}
        for process in self._processes(target):
            found.update(cpus_of_threads(self.host, process))
        if not found:
            raise Unsupported(f"{target['service']} has no process")
        groups: Dict[str, List[str]] = {}
        for thread, cpus in found.items():
            groups.setdefault(cpus, []).append(thread)
        own, *others = groups
        return "; ".join([own, *(f"{cpus} in {', '.join(groups[cpus])}" for cpus in others)])

    def persistent(self, target: Target) -> Optional[Value]:
        return super().persistent({**target, "property": CPUS_PROPERTY})

    def in_terms(self, setting: Setting, found: Value) -> Value:
        """The value itself where no thread is on other CPUs than those that are left.

        More are left while a card is down: what has half of all keeps off as well.
        """
        with contextlib.suppress(Unsupported, ValueError):
            left, online = cpus_left(self.host, setting), Topology(self.host).online
            parts = [part.partition(" in ")[0] for part in str(found).split(";")]
            own, *others = [parse_cpus(part) & online for part in parts]
            if 2 * len(own) >= len(online) and all(cpus <= left for cpus in [own, *others]):
                return setting.value
        return found

    def files(self, journal: Journal, settings: List[Setting]) -> Dict[str, str]:
        content = {}
        for setting in settings:
            left = format_cpus(cpus_left(self.host, setting))
            text = f"{header(journal)}[Service]\n{CPUS_PROPERTY}=\n{CPUS_PROPERTY}={left}\n"
            content[self._ours(setting.target, journal.rank)] = text
        return content

    def _processes(self, target: Target) -> List[str]:
        """The main process first."""
        main = self._show(target, "MainPID")
        group = or_none(self._show, target, "ControlGroup")
        return list(dict.fromkeys([main, *processes_of(self.host, group or "", main)]))


def cpus_left(host: Host, setting: Setting) -> Set[int]:
    """The online CPUs that a service may have, once the siblings are in force.

    Unsupported, with the numbers, where that cannot be told or is less than half of them.
    """
    topology = Topology(host)
    busy = busy_cpus(host, setting.siblings)
    if setting.value == "off_nic_cores":
        busy = busy.union(*map(topology.siblings, busy))
    left = topology.online - busy
    if 2 * len(left) < len(topology.online):
        raise Unsupported(
            f"CPUs {format_cpus(busy)} serve network cards: only {len(left)} of "
            f"{len(topology.online)} would be left"
        )
    return left


def busy_cpus(host: Host, siblings: Sequence[Setting]) -> Set[int]:
    """The CPUs that serve the queues of this host's cards; Unsupported where any CPU may."""
    found: Set[int] = set()
    for interface in interfaces(host):
        # One that is down has no interrupts. Of unknown ones we could not keep off.
        if any(interrupts_of(host, interface).names[:2]):
            found.update(*cpus_that_serve(host, interface, siblings).values())
    if not found:
        raise Unsupported("no interrupts of network cards are found")
    return found


VERBS = {
    "enabled": {"on": "enable", "off": "disable"},
    "active": {"on": "start", "off": "stop"},
}
"""What brings a part into a state, in the order in which it is done."""

ENABLED = {"enabled": "on", "disabled": "off", "masked": "masked"}
"""What systemctl says of units that can be enabled and disabled."""


class Unit(Handler):
    """Whether a unit of systemd is ``active`` (on or off), and ``enabled`` (the same).

    A unit that is masked is not enabled, and reads ``masked``.
    """

    kind = UNIT
    partly = True

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        # While a host boots, systemd starts and stops units in an order of its own.
        self.live = not host.booting

    def probe(self, setting: Setting) -> None:
        """Unsupported for a masked unit that is to run, and for another name of a protected one."""
        masked = self._enabled(setting.target["unit"]) == "masked"
        if masked and "on" in parts(setting.value).values():
            raise Unsupported(f"{setting.target['unit']} is masked")
        # Also the names by which other units know it.
        text = self.host.run("systemctl", "show", "-p", "Names", setting.target["unit"])
        names = text.strip().partition("=")[2].split()
        protected = next(filter(is_protected, names), None)
        if protected:
            reason = f"{setting.target['unit']} is {protected}, which is needed to reach the host"
            raise Unsupported(reason)

    def probe_stored(self, setting: Setting, tuning: str) -> None:
        """Unsupported where the next boot would make it active, or not, against the setting."""
        wanted = parts(setting.value)
        enabled = wanted.get("enabled") or self._enabled(setting.target["unit"])
        after = "on" if enabled == "on" else "off"
        if wanted.get("active", after) != after:
            what = "enabled" if after == "on" else "not enabled"
            raise Unsupported(f"{setting.target['unit']} is {what}: a boot makes it {after} again")

    def runtime(self, target: Target) -> Parts:
        """Both facts."""
        enabled = self._enabled(target["unit"])
        state = self.host.attempt("systemctl", "is-active", target["unit"])[1].strip()
        active = state in ("active", "activating", "reloading")
        return {"active": "on" if active else "off", "enabled": enabled}

    def persistent(self, target: Target) -> Parts:
        """The same after a boot, which starts what is enabled."""
        enabled = self._enabled(target["unit"])
        return {"active": "on" if enabled == "on" else "off", "enabled": enabled}

    def same(self, now: Value, wanted: Value) -> bool:
        """Whether each part is as wanted; what is masked is off."""
        found = {name: "off" if part == "masked" else part for name, part in parts(now).items()}
        return holds(found, wanted)

    def snapshot(self, target: Target) -> Parts:
        return self.runtime(target)

    def apply(self, target: Target, value: Value) -> None:
        """Change the parts that differ."""
        now = self.runtime(target)
        for name, verbs in VERBS.items():
            wanted = str(parts(value).get(name, now[name]))
            if wanted in verbs and not self.same(now, {name: wanted}):
                # Waiting for a unit that is ordered after us would never end.
                wait = ["--no-block"] if self.host.booting and name == "active" else []
                self.host.run("systemctl", *wait, verbs[wanted], target["unit"])

    def present(self, target: Target) -> bool:
        return bool(or_none(self._enabled, target["unit"]))

    def restore(self, target: Target, snapshot: object) -> None:
        self.apply(target, {**texts(snapshot)})

    def _enabled(self, unit: str) -> str:
        if self.host.init != "systemd" or not self.host.program("systemctl"):
            raise Unsupported("there is no systemd here")
        state = self.host.attempt("systemctl", "is-enabled", unit)[1].strip()
        if state in ("", "not-found"):
            raise Unsupported(f"there is no unit {unit}")
        if state not in ENABLED:
            raise Unsupported(f"{unit} is {state}: it cannot be enabled or disabled")
        return ENABLED[state]
