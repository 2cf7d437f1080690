# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with a host with FreeBSD that serves much, and which settings would help.

What made an appliance reach 100 Gbit/s in 2017 were changes to its kernel ("fake NUMA", buffers of
the pager without one lock, network buffers of several pages). Kernels have what they became.
"""

import calendar
import contextlib
import re
import time
from typing import Callable, Dict, Iterator, Optional, Sequence, Tuple

from edgetune.agent.findings import Look, finding, per_s, percent
from edgetune.agent.findings.conflicts import drift
from edgetune.agent.freebsd.counters import Zone, counters, zones
from edgetune.agent.freebsd.readings import (
    carrying,
    cpus_of,
    domain_of,
    domains,
    environment,
    environments,
    number,
    queues,
    read_parameter,
)
from edgetune.agent.host import Host
from edgetune.agent.protocol import Failed, Json, Unsupported, complaint

SELDOM = 0.01
"""So many a second since the boot are worth a word, where there is none right now."""

AGAIN = 0.01
"""The share of segments that are sent again, from which on RACK is worth a trial."""


class Snapshot(Look):
    """With the zones of the second look."""

    def __init__(self, host: Host, services: Sequence[str]) -> None:
        super().__init__(host, services)
        self.zones: Dict[str, Zone] = {}

    @property
    def uptime(self) -> float:
        return time.monotonic()

    def total(self, *names: str) -> int:
        """The sum of counters since the boot."""
        return sum(self._last.get(name, 0) for name in names)

    def rate(self, *names: str) -> float:
        """By how much they grew each second while we looked."""
        # A counter without a value before may have been counting for long.
        before = {**self._last, **self._first} if self.live else {}
        grown = [self._last.get(name, 0) - before.get(name, 0) for name in names]
        return float(sum(max(each, 0) for each in grown) / self.seconds)

    def goes_on(self, *names: str) -> bool:
        """Whether it happens now, or often enough since the boot."""
        return (self.live and self.rate(*names) > 0) or self.total(*names) / self.uptime >= SELDOM

    def _read(self) -> Dict[str, int]:
        self.zones = {}
        try:
            self.zones = zones(self.host)
        except Failed as why:
            self.unread["vmstat -z"] = complaint(why)
        found = counters(self.host, self.zones)
        if "tcp_segments_out" not in found:
            self.unread["netstat --libxo json -s -p tcp"] = "is not understood"
        for name, zone in self.zones.items():
            found[_failed(name)], found[_slept(name)] = zone.failed, zone.slept
        return found


def _failed(zone: str) -> str:
    return f"{zone} FAIL"


def _slept(zone: str) -> str:
    return f"{zone} SLEEP"


def listen_queue(snap: Snapshot) -> Iterator[Json]:
    """Connections dropped because nobody accepted them in time."""
    name, allowed = "listen_overflows", "kern.ipc.soacceptqueue"
    if snap.goes_on(name):
        rate, total = snap.rate(name), snap.total(name)
        what = (
            f"full accept queues drop {per_s(rate, 'connections')} ({total} since the boot); "
            f"{_is(snap, allowed)}, of which a socket takes its share when it begins to listen"
        )
        numbers = {"dropped_per_s": rate, "dropped": total, **_known(snap, allowed)}
        yield finding("listen_queue", what, numbers)


def segments_again(snap: Snapshot) -> Iterator[Json]:
    """Segments sent again, by a TCP stack that RACK could take the place of."""
    again, first = "tcp_retransmits", "tcp_segments_out"
    sent = snap.rate(again, first)
    stack = read_parameter(snap.host, "net.inet.tcp.functions_default")
    share = snap.rate(again) / sent if sent else 0.0
    if stack == "freebsd" and share >= AGAIN:
        what = f"{percent(share)} of the segments are sent again, by the TCP stack {stack}"
        yield finding("segments_again", what, {"share": share, "sent_per_s": sent}, "oca_network")


def buffers_refused(snap: Snapshot) -> Iterator[Json]:
    """Network buffers that there were not."""
    zones = [name for name in snap.zones if name.startswith("mbuf")]
    names = [_failed(name) for name in zones]
    if not names or not snap.goes_on(*names):
        return
    rate, total = snap.rate(*names), snap.total(*names)
    short = [name for name in zones if snap.zones[name].failed]
    clusters = "kern.ipc.nmbclusters"
    what = (
        f"{per_s(rate, 'network buffers')} are refused ({total} since the boot: {_few(short)}); "
        f"{_is(snap, clusters)}"
    )
    numbers = {"refused_per_s": rate, "refused": total, **_known(snap, clusters)}
    yield finding("buffers_refused", what, numbers)


def pager_buffers(snap: Snapshot) -> Iterator[Json]:
    """Reads of files that wait for a buffer: each kind has a zone, with caches for each CPU."""
    zones = [name for name in snap.zones if "pbuf" in name]
    names = [count(name) for name in zones for count in (_failed, _slept)]
    if not names or not snap.goes_on(*names):
        return
    rate, total = snap.rate(*names), snap.total(*names)
    waited = [name for name in zones if snap.zones[name].failed or snap.zones[name].slept]
    what = (
        f"{per_s(rate, 'requests')} find no buffer of the pager ({total} since the boot: "
        f"{_few(waited)}); {_is(snap, 'kern.nswbuf')}, which a boot sets (loader.tunable)"
    )
    numbers = {"waits_per_s": rate, "waits": total, **_known(snap, "kern.nswbuf")}
    yield finding("pager_buffers", what, numbers)


def single_pages(snap: Snapshot) -> Iterator[Json]:
    """Network buffers of one page each, though kernels have those of several."""
    what = "sendfile makes a network buffer for each page, and TLS in the kernel cannot work"
    yield from _switched_off(snap, "single_pages", "kern.ipc.mb_use_ext_pgs", what)


def kernel_tls(snap: Snapshot) -> Iterator[Json]:
    """TLS that web servers do alone."""
    what = "web servers copy what they send over TLS, instead of sendfile"
    yield from _switched_off(snap, "kernel_tls", "kern.ipc.tls.enable", what)


def _switched_off(snap: Snapshot, name: str, parameter: str, what: str) -> Iterator[Json]:
    if read_parameter(snap.host, parameter) == "0":
        numbers = {parameter.rpartition(".")[2]: 0}
        yield finding(name, f"{what}: {parameter} is 0", numbers)


def no_domains(snap: Snapshot) -> Iterator[Json]:
    """Domains of memory switched off: the kernel has one queue of pages for all sockets."""
    if environment(snap.host, "vm.numa.disabled") == "1":
        what = "the kernel has one domain of memory for all sockets: vm.numa.disabled is 1"
        yield finding("no_domains", what, {"disabled": 1, **_known(snap, "vm.ndomains")})


def interrupts_afar(snap: Snapshot) -> Iterator[Json]:
    """Queues of cards that CPUs of another domain may serve."""
    known = domains(snap.host)
    if len(known) < 2:
        return
    for card in carrying(snap.host):
        near, every = domain_of(snap.host, card.name), queues(snap.host, card.name)
        if near is None or near not in known or not every:
            continue
        afar = [queue for queue in every if not cpus_of(snap.host, queue) <= known[near]]
        if afar:
            what = (
                f"CPUs of other domains may serve {len(afar)} of {len(every)} queues of "
                f"{card.name}, which is near domain {near} (nic.irq_affinity: local)"
            )
            yield finding("interrupts_afar", what, {"queues": len(afar), "all": len(every)})


LATER = 30
"""By so many days another boot environment is newer than the one that runs."""

_OF_UPDATE = re.compile(r".+_\d{4}-\d\d-\d\d_\d{6}")
"""What freebsd-update(8) creates before it changes what runs: that is newer, and holds less."""


def environment_waits(snap: Snapshot) -> Iterator[Json]:
    """A boot environment that is newer than the one that runs: somebody made it, and no host of
    this age boots it."""
    try:
        known = environments(snap.host)
    except Unsupported:
        # Without ZFS there are none.
        return
    running = _day(known.created[known.running])
    others = [name for name in known.names if not _OF_UPDATE.fullmatch(name)]
    newest = max(others, key=lambda name: _day(known.created[name]) or 0.0, default="")
    last = _day(known.created.get(newest, ""))
    days = (last - running) / 86400 if running and last else 0.0
    if days >= LATER:
        age = (snap.now - (running or 0.0)) / 86400
        what = (
            f"the boot environment {known.running} runs, which is {age:.0f} days old; {newest} was "
            f"created {days:.0f} days later"
        )
        numbers = {"days_newer": int(days), "days_old": int(age)}
        yield finding("environment_waits", what, numbers, "oca_kernel", "note")


def _day(text: str) -> Optional[float]:
    """The moment that bectl(8) tells, in epoch seconds; None of anything else."""
    parts = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d)", text)
    with contextlib.suppress(ValueError):
        if parts:
            year, month, day, hour, minute = map(int, parts.groups())
            return float(calendar.timegm((year, month, day, hour, minute, 0)))
    return None


def _known(snap: Snapshot, parameter: str) -> Dict[str, int]:
    """The number of a parameter by the last part of its name; nothing where it has none."""
    value = number(snap.host, parameter)
    return {} if value is None else {parameter.rpartition(".")[2]: value}


def _is(snap: Snapshot, parameter: str) -> str:
    return f"{parameter} is {read_parameter(snap.host, parameter) or 'not told'}"


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


Finder = Callable[[Snapshot], Iterator[Json]]

FINDERS: Tuple[Finder, ...] = (
    listen_queue,
    segments_again,
    buffers_refused,
    pager_buffers,
    single_pages,
    kernel_tls,
    no_domains,
    interrupts_afar,
    environment_waits,
    drift,
)
"""As those of Linux; a finding of both has one name for each."""
