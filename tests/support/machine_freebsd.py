# SPDX-License-Identifier: Apache-2.0
"""Moves upon hosts with FreeBSD."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgetune.agent.freebsd.counters import zones
from edgetune.agent.freebsd.readings import carrying, gateways, interfaces, queues, read_parameters
from edgetune.agent.host import Host
from edgetune.agent.vocabulary.values import format_cpus
from tests.support import FIXTURES
from tests.support.freebsd import LINKS
from tests.support.machine_moves import Moves, differing

RECORDED = FIXTURES / "freebsd"
CARD = """\
{name}: flags=8843<UP,BROADCAST,RUNNING,SIMPLEX,MULTICAST> metric 0 mtu 1500
\tmedia: Ethernet 100GBase-SR4 <full-duplex>
\tstatus: active
"""


class OnFreeBsd(Moves):
    """Moves upon a host with FreeBSD."""

    interface = "ix0"

    def __init__(self, host: Any, patch: pytest.MonkeyPatch) -> None:
        super().__init__(host, patch)
        self._names["KERNEL"] = host.release

    def mark_settled(self, _: object) -> None:
        """What is now, but for what the next agent that comes by removes, is what
        ``same_settled`` means."""
        self._settled = self.host.settled()

    def same_settled(self, _: object) -> None:
        after = self.host.settled()
        assert after == self._settled, f"{self.where}: {differing(self._settled, after)}"

    def reboots(self, expected: bool) -> None:
        """Whether the host was told to reboot, since that was asked last."""
        assert self.host.reboots is expected, f"{self.where}: not {expected}"

    def later_zones(self, told: dict[str, dict[str, int]]) -> None:
        """Zones tell these when a diagnosis looks again."""
        name = "edgetune.agent.findings.freebsd.time.sleep"
        self.patch.setattr(name, lambda _: self.zones(told))

    def tell(self, values: dict[str, str]) -> None:
        """The kernel tells others from its next start on."""
        for name, value in values.items():
            self.host.tell(name, value)

    def answers(self, calls: dict[str, str | None]) -> None:
        """What programs answer to calls that begin so."""
        for call, text in calls.items():
            self.host.fails.pop(call, None)
            if text is not None:
                self.host.fails[call] = (0, text, "")

    def exits(self, calls: dict[str, list[Any]]) -> None:
        """With a status, an output and an error."""
        self.host.fails.update((call, tuple(told)) for call, told in calls.items())

    def served(self, cpus: str) -> None:
        """The CPUs of the interrupts of both queues."""
        self._compare("served", f"{self._cpus(264)} {self._cpus(265)}", cpus)

    def irqs(self, expected: dict[int, str]) -> None:
        self._compare("irqs", {number: self._cpus(number) for number in expected}, expected)

    def _cpus(self, number: int) -> str:
        told = self.host.attempt("cpuset", "-g", "-x", str(number))[1].partition("mask: ")[2]
        return format_cpus({int(cpu) for cpu in told.split(",")})

    def mellanox(self, _: object) -> None:
        """A card of mlx5en(4), whose interrupts have one name."""
        self.host.tell("dev.mce.0.conf.channels", "4", "both")
        self.host.tell("dev.mce.0.conf.debug_stats", "0", "writable")
        self.host.tell("dev.mce.0.conf.device_name", "mlx5_core0", "fixed")
        self.host.tell("dev.mlx5_core.0.%domain", "1", "fixed")
        self.host.tell("vm.ndomains", "2")
        rows = "".join(f"irq{number}: mlx5_core0     7   0\n" for number in range(99, 110))
        self.write({"stub/interrupts.txt": f"interrupt                total       rate\n{rows}"})
        self.write({"stub/ifconfig.txt": CARD.format(name="mce0")})
        self.boot(None)

    def channels(self, words: dict[int, str]) -> None:
        """What the card of mlx5en tells of some."""
        name = "dev.mce.0.hw_ctx_debug"
        told = "".join(f"channel {at} {own} cq 1 irq {102 + at}\n" for at, own in words.items())
        self.answers({f"sysctl {name}": f"{name}: pages irq 99\n{told}"})

    def cards(self, names: list[str]) -> None:
        """Have these, and lo0."""
        loopback = "lo0: flags=8049<UP,LOOPBACK,RUNNING,MULTICAST> metric 0 mtu 16384\n"
        own = "".join(CARD.format(name=name) for name in names)
        self.answers({"ifconfig -a": loopback + own})

    def zones(self, told: dict[str, dict[str, int]]) -> None:
        """Zones tell other numbers."""
        for name, columns in told.items():
            head, *rows = self.host.read("stub/zones.txt").splitlines()
            own = {**dict.fromkeys(head.split()[1:], 0), **columns}
            kept = [row for row in rows if not row.startswith(f"{name}:")]
            kept += [f"{name}: {', '.join(map(str, own.values()))}"]
            self.host.write("stub/zones.txt", "\n".join([head, *kept]) + "\n")

    def young(self, uptime: float) -> None:
        """It was booted so many seconds ago, and is well."""
        self.patch.setattr("edgetune.agent.findings.freebsd.Snapshot.uptime", uptime)
        if "tcp.json" not in self._names:
            self._names["tcp.json"] = ""
            self.segments([100000, 12, 0])

    def segments(self, told: list[int]) -> None:
        """How many were sent, sent again, and dropped."""
        names = ("sent-packets", "sent-retransmitted-packets", "listen-queue-overflows")
        text = json.dumps({"statistics": {"tcp": dict(zip(names, told))}})
        self.host.write("stub/tcp.json", text)

    def finds(self, expected: dict[str, Any]) -> None:
        """All findings by name, in order."""
        before = self.whole()
        told = self.host.ask("diagnose", seconds=0, services=["nginx"])
        assert told["unread"] == [] and self.whole() == before, self.where
        found = {row["finding"]: row for row in told["findings"]}
        self._compare("findings", [*found], [*expected])
        self._compare("findings", found, {name: own for name, own in expected.items() if own})

    def untold(self, case: dict[str, Any]) -> None:
        """A sample lacks one number if a program answers so, and is as before else."""
        whole = self.host.ask("sample", health_requests=0)
        answer = LINKS.replace(*case["links"]) if "links" in case else case["answer"]
        self.answers({case["call"]: answer})
        told = self.host.ask("sample", health_requests=0)
        was = {**whole["counters"], **whole["gauges"]}
        now = {**told["counters"], **told["gauges"]}
        assert case["lost"] in was and case["lost"] not in now
        assert all(was[name] == now[name] for name in now)

    # What was recorded.

    def prints(self, files: dict[str, str]) -> None:
        """Programs print what real ones did."""
        self.answers({call: RECORDED.joinpath(file).read_text() for call, file in files.items()})

    def renamed(self, told: list[str]) -> None:
        """What a program prints has another word for one."""
        call, old, new = told
        self.answers({call: self.host.fails[call][1].replace(old, new)})

    def headed(self, told: list[str]) -> None:
        """What a program prints has another line at its head."""
        self.answers({told[0]: told[1] + self.host.fails[told[0]][1]})

    def prints_stacks(self, file: str) -> None:
        text = RECORDED.joinpath(file).read_text().partition("functions_available: ")[2]
        self.answers({"sysctl -n net.inet.tcp.functions_available": text.partition("net.inet")[0]})

    @property
    def _agent(self) -> Host:
        return Host(str(self.host.path))

    def carries(self, expected: list[Any]) -> None:
        """The one card, and lo0 where there is one."""
        (card,) = carrying(self._agent)
        self._compare("card", [card.name, card.up, card.speed, card.addresses], expected)
        loopback = [
            [*each.addresses, each.up] for each in interfaces(self._agent) if each.name == "lo0"
        ]
        assert loopback in ([], [["127.0.0.1", "::1", "fe80::1", True]]), self.where

    @property
    def gateways(self) -> list[str]:
        return list(gateways(self._agent))

    def told(self, expected: dict[str, str | None]) -> None:
        """Parameters, and those that are none."""
        known = {name: text for name, text in expected.items() if text is not None}
        seen = read_parameters(self._agent, tuple(expected))
        assert seen == known, f"{self.where}: {seen}"

    def ports(self, parents: dict[str, str]) -> None:
        """Cards of Chelsio are ports of a chip."""
        for name, parent in parents.items():
            self.host.tell(f"dev.cxl.{name[3:]}.%parent", parent, "fixed")
            self.host.tell(f"dev.cxl.{name[3:]}.%location", f"port={name[3:]}", "fixed")
        self.host.machine.boot()

    def queues(self, expected: dict[str, list[int]]) -> None:
        seen = {name: [own.irq for own in queues(self._agent, name)] for name in expected}
        assert seen == expected, f"{self.where}: {seen}"

    def queue(self, card: str, number: str) -> list[Any]:
        own = queues(self._agent, card)[int(number)]
        return [own.name, own.number, own.side]

    def zone(self, name: str) -> list[int]:
        own = zones(self._agent)[name]
        return [own.limit, own.used, own.failed, own.slept]

    @property
    def zone_names(self) -> list[str]:
        return list(zones(self._agent))[:3]
