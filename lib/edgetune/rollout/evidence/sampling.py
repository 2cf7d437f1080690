# SPDX-License-Identifier: Apache-2.0
"""Have the hosts of PoPs sampled, and keep the samples; whether a PoP carries so much more than
usual that this is no time to drain anything. Whether samples come as often as a rollout needs them,
are kept for as long, and how much memory they take.

What a metric source remembers itself is not stored, and takes none. A sweep of a PoP is one
document of columns (see ``table``), and one member of a sorted set of Redis.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import TypedDict

from edgetune.agent.log_format import LogFormat
from edgetune.agent.vocabulary.buckets import BUCKET, bucket_name, bucket_of
from edgetune.base import clock
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.ahead import ahead_key, read_ahead
from edgetune.base.documents.head import ENDED
from edgetune.base.documents.options import LEAST_SAMPLES, Options
from edgetune.base.documents.sample import Drift, Sample
from edgetune.base.documents.table import SampleTable
from edgetune.base.durations import duration
from edgetune.base.errors import DamagedError, EdgetuneError, RefusedError, SourceError
from edgetune.base.names import few
from edgetune.judge.limits import peak_load
from edgetune.net.metrics.source import MetricNames, Sampled
from edgetune.rollout.context import Context
from edgetune.rollout.ownership.automation import SAMPLED_EVERY
from edgetune.rollout.record.heads import living_heads, read_all_heads
from edgetune.rollout.record.rollout import Record, load_plan
from edgetune.rollout.store.heartbeat import Heartbeat
from edgetune.site.inventory import Host, Pop

HEALTH_REQUESTS = 5
RECENT = 20
"""How far back it is looked how far apart samples come, in intervals."""
_APART = 2.0
# How old the newest sample of a PoP with a rollout may be, and likewise in intervals.
_STALE, _STALE_INTERVALS = 300.0, 3
# Settings of one host that are listed one by one.
_MOST_DRIFT = 50
_LONGEST_MS = 600_000


# After so many sweeps in a row the guard has told of a silent host, which is then left out of each
# second one. One of three would be too few: a host is lost by three samples that others have, and
# those of the sweep that asks it last are stored before its own.
_SILENT = 4


def sampled_by_rule(pop: str) -> str:
    """Whose heartbeat says when the rule ``sample_running`` sampled a PoP."""
    return f"sample_running:{pop}"


class SampleResult(TypedDict):
    """Hosts that answered, and by host why one did not, what has drifted there, and why its access
    log was not read."""

    samples: int
    missing: list[str]
    errors: dict[str, str]
    drift: dict[str, list[Drift | str]]
    logs: dict[str, str]
    message: str


def stale_after(interval: float) -> float:
    """How many seconds without a sample are too many, where one is planned each ``interval``."""
    return max(_STALE, _STALE_INTERVALS * interval)


@dataclass
class Found:
    """What one or more sweeps found: who answered, and of each host the last problem and drift, and
    what kept it from reading its access log."""

    answered: set[str] = field(default_factory=set)
    errors: dict[str, str] = field(default_factory=dict)
    drift: dict[str, list[Drift | str]] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)

    def add(self, later: Found) -> None:
        self.answered |= later.answered
        self.errors.update(later.errors)
        self.drift.update(later.drift)
        self.logs.update(later.logs)

    def result(self) -> SampleResult:
        """The result of an action."""
        lost = f"; no answer from {', '.join(self.errors)}" if self.errors else ""
        adrift = f"; {len(self.drift)} with drift: {', '.join(self.drift)}" if self.drift else ""
        unread = [f"{host}: {why}" for host, why in self.logs.items()]
        logs = f"; access logs: {few(unread)}" if unread else ""
        return {
            "samples": len(self.answered),
            "missing": list(self.errors),
            "errors": self.errors,
            "drift": self.drift,
            "logs": self.logs,
            "message": f"{len(self.answered)} hosts sampled{lost}{adrift}{logs}",
        }


class Sweep:
    """Called for each PoP as its last host has answered: this one keeps nothing."""

    def left_out(self, pop: str) -> Mapping[str, str]:
        """Hosts of a PoP that are not asked over SSH this time, each with the reason."""
        return {}

    def comes_last(self, pop: str) -> Collection[str]:
        """Hosts of a PoP that are asked after all others."""
        return ()

    def ended(self, pop: str, answers: Mapping[str, Sampled]) -> None:
        """The answers about all hosts of a PoP, by host."""


class SweepOfRule(Sweep):
    """That of the rule ``sample_running``: it says of each PoP when it was sampled, as that ends.

    A host that was silent is asked last: it keeps no other waiting. After ``_SILENT`` sweeps in a
    row it is left out of one sweep of two.
    """

    def __init__(self, context: Context, pops: Iterable[str]) -> None:
        self._context = context
        self._silent = {pop: self._last(pop) for pop in pops}

    def _last(self, pop: str) -> Mapping[str, tuple[int, int]]:
        # One that is damaged tells of no host that was silent.
        with suppress(DamagedError):
            last = self._context.heartbeats.last(sampled_by_rule(pop))
            return last.silent if last else {}
        return {}

    def left_out(self, pop: str) -> Mapping[str, str]:
        return {
            host: f"no answer to {times} sweeps in a row; the next sweep asks it again"
            for host, (times, rest) in self._silent[pop].items()
            if rest
        }

    def comes_last(self, pop: str) -> Collection[str]:
        return self._silent[pop].keys()

    def ended(self, pop: str, answers: Mapping[str, Sampled]) -> None:
        silent: dict[str, tuple[int, int]] = {}
        for host in (host for host, answer in answers.items() if answer.silent):
            times, rest = self._silent[pop].get(host, (0, 0))
            silent[host] = (times, 0) if rest else (times + 1, int(times + 1 >= _SILENT))
        beat = Heartbeat(clock.wall(), silent=silent)
        self._context.heartbeats.beat(sampled_by_rule(pop), beat)


def sample_pops(context: Context, pops: Sequence[str], sweep: Sweep | None = None) -> Found:
    """Take one sample of every host of PoPs."""
    total = Found()
    asked = [context.known_inventory.pop(name) for name in pops]
    for answers in _sweep(context, asked, sweep or Sweep()).values():
        errors = {host: answer.error for host, answer in answers.items() if answer.error}
        drift = {host: _drift_of(answer.drift) for host, answer in answers.items() if answer.drift}
        logs = {host: answer.log for host, answer in answers.items() if answer.log}
        total.add(Found(answers.keys() - errors.keys(), errors, drift, logs))
    return total


def recent_samples(opened: Record, seconds: float, interval: float) -> SampleTable:
    """The PoP's samples of the last ``seconds``; a new one is taken if there is none as fresh
    as ``interval``. None where a source that keeps them is away: that stops no rollback."""
    samples, pop, now = opened.context.samples, opened.pop, clock.wall()
    try:
        if not samples.window(pop.name, now - interval, now):
            sample_pop(opened.context, pop)
        if not samples.window(pop.name, now - seconds, now):
            # A rate needs two.
            clock.sleep(_APART)
            sample_pop(opened.context, pop)
        return samples.window(pop.name, now - seconds, clock.wall())
    except SourceError:
        return SampleTable()


def spacing(opened: Record, begin: float, end: float) -> float:
    """Seconds from one sample of a host in a window to the next, usually; 0 where too few tell."""
    try:
        samples = opened.context.samples.window(opened.head.pop, begin, end)
    except SourceError:
        return 0.0
    times: dict[int, set[float]] = {}
    for host, time_of_it in zip(samples.host, samples.time):
        times.setdefault(host, set()).add(time_of_it)
    apart = [_usual_gap(sorted(some)) for some in times.values() if len(some) >= LEAST_SAMPLES]
    return statistics.median(apart) if apart else 0.0


# Hours of samples that are read at once, and seconds that reading may take.
_PART, _PATIENCE = 6 * 3600.0, 20.0


def measured_since(opened: Record, longest: float) -> float:
    """Since when samples tell of every host of a plan until now, without a gap and a boot; at most
    ``longest`` seconds back, and not before the last rollout of the PoP ended. After that and a
    boot there is the warm-up of the plan.

    Now itself where they do not, and where a record does not tell when its rollout ended. What
    takes too long to read is not looked at.
    """
    now, options = clock.wall(), opened.plan.options
    heads, unreadable = read_all_heads(opened.context, opened.head.pop)
    if unreadable:
        return now
    ended = [
        head.history[-1].at + options.warmup
        for head in heads
        if head.id != opened.head.id and head.history
    ]
    earliest = max([now - longest, *ended])
    hosts = opened.plan.groups.hosts
    known = {host: _History(now) for host in hosts}
    until, deadline = now, clock.monotonic() + _PATIENCE
    try:
        while until > earliest and clock.monotonic() < deadline:
            start = max(until - _PART, earliest)
            samples = opened.context.samples.window(opened.head.pop, start, until)
            _go_back(samples, known, stale_after(options.interval))
            # Of a host that does not tell further, nobody looks further.
            ends = (host for host in known.values() if host.has_ended(start, options.interval))
            stopped = [host.since for host in ends]
            earliest, until = max([earliest, *stopped]), start
    except SourceError:
        return now
    since = max([earliest, until, *(host.since for host in known.values())])
    booted = any(host.booted for host in known.values())
    return min(now, since + options.warmup * booted)


@dataclass
class _History:
    """Since when one host has samples, back from now, and whether a boot ``ended`` that."""

    since: float
    boot: str = ""
    ended: bool = False
    booted: bool = False

    def has_ended(self, start: float, interval: float) -> bool:
        return self.ended or self.since > start + stale_after(interval)


def _go_back(samples: SampleTable, known: Mapping[str, _History], gap: float) -> None:
    """Follow each host back through a part of its samples, the newest first."""
    hosts, boots = samples.hosts, samples.boots
    rows = sorted(range(len(samples)), key=lambda row: samples.time[row], reverse=True)
    for row in rows:
        host = known.get(hosts[samples.host[row]])
        if host is None or host.ended:
            continue
        boot = boots[samples.boot[row]]
        host.booted = bool(host.boot) and boot != host.boot
        host.ended = host.booted or host.since - samples.time[row] > gap
        if not host.ended:
            host.since, host.boot = samples.time[row], boot


def _usual_gap(times: Sequence[float]) -> float:
    return statistics.median(later - time for time, later in zip(times, times[1:]))


def sample_pop(context: Context, pop: Pop) -> list[Sample]:
    """Take one sample of every host of a PoP, and keep those that there are."""
    answers = _sweep(context, [pop], Sweep())[pop.name].values()
    return [answer.sample for answer in answers if answer.sample is not None]


def _sweep(context: Context, pops: Sequence[Pop], sweep: Sweep) -> dict[str, dict[str, Sampled]]:
    """Sample PoPs by all of their sources, and keep what has come while slow hosts are awaited.

    By PoP and host, in the order of the inventory.
    """
    answers: dict[Host, list[Sampled]] = {}
    ended: dict[str, dict[str, Sampled]] = {}
    left = {pop.name: len(pop.views) * len(pop.hosts) for pop in pops}
    by_name = {pop.name: pop for pop in pops}
    for number in range(max((len(pop.views) for pop in pops), default=0)):
        for name, part in _sweep_by(context, pops, number, sweep):
            for host, answer in part.items():
                answers.setdefault(host, []).append(answer)
            left[name] -= len(part)
            if not left[name]:
                ended[name] = {host.name: joined(answers[host]) for host in by_name[name].hosts}
                sweep.ended(name, ended[name])
    return {pop.name: ended[pop.name] for pop in pops}


def _sweep_by(
    context: Context, pops: Sequence[Pop], number: int, sweep: Sweep
) -> Iterator[tuple[str, dict[Host, Sampled]]]:
    """By the source of that number of each PoP. PoPs with the same source are sampled at once."""
    views = [pop.views[number] for pop in pops if number < len(pop.views)]
    for name in dict.fromkeys(view.metrics.source for view in views):
        alike = [view for view in views if view.metrics.source == name]
        pop_of, left_out = _asked(alike, sweep if name == "hosts" else Sweep())
        yield from left_out
        for part in context.metric_source(name).sample(pop_of, HEALTH_REQUESTS):
            by_pop: dict[str, dict[Host, Sampled]] = {}
            for host, sampled in part.items():
                by_pop.setdefault(pop_of[host].name, {})[host] = sampled
            for pop, hosts in by_pop.items():
                fresh = [each.sample for each in hosts.values() if each.sample is not None]
                if fresh:
                    context.samples.add(pop, fresh, number)
                yield pop, hosts


def _asked(
    views: Sequence[Pop], sweep: Sweep
) -> tuple[dict[Host, Pop], list[tuple[str, dict[Host, Sampled]]]]:
    """The hosts that are asked, in this order, and by PoP the answers about the others."""
    first, last, unasked = [], [], []
    for view in views:
        out, silent = sweep.left_out(view.name), sweep.comes_last(view.name)
        asked = [host for host in view.hosts if host.name not in out]
        first += [(host, view) for host in asked if host.name not in silent]
        last += [(host, view) for host in asked if host.name in silent]
        left = [host for host in view.hosts if host.name in out]
        if left:
            unasked.append((view.name, {h: Sampled(error=out[h.name], silent=True) for h in left}))
    return dict([*first, *last]), unasked


def joined(answers: Sequence[Sampled]) -> Sampled:
    """The answers of a host's sources as one: the sample of the first that has one, and gauges of
    the others that it lacks. It may have errors of the others all the same."""
    samples = [answer.sample for answer in answers if answer.sample is not None]
    silent = any(answer.silent for answer in answers)
    if not samples:
        return Sampled(error=_errors(answers), silent=silent)
    gauges = {name: value for each in samples[::-1] for name, value in each.gauges.items()}
    return Sampled(
        replace(samples[0], gauges=gauges),
        error=_errors(answers),
        drift=[row for answer in answers for row in answer.drift],
        health="; ".join(answer.health for answer in answers if answer.health),
        log="; ".join(answer.log for answer in answers if answer.log),
        silent=silent,
    )


def _errors(answers: Sequence[Sampled]) -> str:
    return "; ".join(answer.error for answer in answers if answer.error)


def pops_under_way(context: Context) -> list[str]:
    """Those with a rollout that has not ended, then those that a campaign has sampled ahead; one
    that the inventory lost stops no other.

    Of both in an order of chance: where dead hosts use the time of the action up, not always the
    same PoPs are left without samples.
    """
    under_way = {head.pop for head in living_heads(context) if head.state not in ENDED}
    names = context.known_inventory.pop_names()
    parts = [under_way & {*names}, _pops_ahead(context) & {*names} - under_way]
    return [pop for part in parts for pop in random.sample(sorted(part), len(part))]


def _pops_ahead(context: Context) -> set[str]:
    """What cannot be read is not sampled ahead: a baseline is waited for then, as ever."""
    pops: set[str] = set()
    for key, text in context.store.list(ahead_key("")).items():
        with suppress(RefusedError):
            ahead = read_ahead(key, text)
            pops.update(ahead.pops if clock.wall() < ahead.until else [])
    return pops


def _drift_of(rows: Sequence[Drift]) -> list[Drift | str]:
    """What is not any more as a standing tuning left it, of many settings the first ones."""
    more = len(rows) - _MOST_DRIFT
    return [*rows[:_MOST_DRIFT], *([f"and {more} more settings"] if more > 0 else [])]


# Intervals back in which load counts as the present one.
_RECENT = 3


def surge_of(opened: Record) -> str:
    """Why nothing is drained now, or nothing; hosts are sampled if there is no fresh sample."""
    if opened.head.usual_load <= 0:
        return ""
    interval = opened.plan.options.interval
    return surge_in(opened, recent_samples(opened, _RECENT * interval, interval))


def surge_in(opened: Record, samples: SampleTable) -> str:
    """The same of some samples."""
    if opened.head.usual_load <= 0:
        return ""
    times = peak_load(samples, opened.plan.options.interval) / opened.head.usual_load
    if times <= opened.config.surge_factor:
        return ""
    return f"{opened.head.pop} carries {times:.1f} times its usual load; nothing is drained now"


def looked_at(options: Options, every: float) -> Options:
    """With as many looks as a soak allows that is sampled each ``every`` seconds, if that is more
    than the interval: the rule samples it where no workflow stays. RefusedError if it allows none.
    """
    if every <= options.interval:
        return options
    looks, least = options.looks_at(every), options.warmup + LEAST_SAMPLES * every
    if not looks:
        raise RefusedError(
            f"soak={duration(options.soak)} is too short: the rule sample_running samples every "
            f"{duration(every)}, and a look needs {LEAST_SAMPLES} samples after "
            f"warmup={duration(options.warmup)}; give soak={duration(math.ceil(least))} or more, "
            f"or wait=true: its workflow samples every {duration(options.interval)}"
        )
    return replace(options, looks=looks)


def refuse_short_retention(context: Context, pop: Pop, options: Options) -> None:
    """RefusedError where samples would be forgotten before they are compared."""
    kept = context.config.sample_retention
    apart = options.warmup + options.soak / options.planned_looks
    # Around a window there are samples of both sides.
    needed = max(options.baseline, apart) + 2 * options.interval
    if needed > kept and context.samples.stored_series(pop.name):
        raise RefusedError(
            f"samples of {pop.name} are kept for {duration(kept)}, and the baseline and the time "
            f"from one look to the next need them for {duration(math.ceil(needed))}; lengthen "
            "sample_retention of the configuration, or shorten these"
        )


def refuse_much_memory(context: Context, pop: Pop, options: Options) -> None:
    """RefusedError where the samples of a rollout would take more than ``sample_memory``."""
    kept, most = context.config.sample_retention, context.config.sample_memory * 10**6
    needed = _bytes_of(context, pop, kept, SAMPLED_EVERY)
    if options.interval < SAMPLED_EVERY:
        # Its workflow samples besides the rule.
        lasts = min(kept, options.baseline + options.soak)
        needed += _bytes_of(context, pop, lasts, options.interval)
    if needed <= most:
        return
    some = " leave times out of log_format," if bucket_counters(pop, context.catalogue) else ""
    longer = (
        f" give interval={duration(SAMPLED_EVERY)}," if options.interval < SAMPLED_EVERY else ""
    )
    raise RefusedError(
        f"samples of {pop.name} may take {megabytes(needed)}, and sample_memory of the "
        f"configuration permits {megabytes(most)}: {duration(kept)} of {len(pop.hosts)} hosts are "
        f"kept; shorten sample_retention,{longer}{some} or raise sample_memory"
    )


def most_bytes(context: Context, pops: Iterable[Pop]) -> int:
    """Bytes of the samples of PoPs that have rollouts under way all the time.

    A workflow whose rollout has a shorter interval samples besides the rule ``sample_running``.
    """
    kept, faster = context.config.sample_retention, _faster(context)
    return sum(
        _bytes_of(context, pop, kept, interval)
        for pop in pops
        for interval in (SAMPLED_EVERY, *faster.get(pop.name, []))
    )


def _bytes_of(context: Context, pop: Pop, retention: float, interval: float) -> int:
    known = context.catalogue
    readings = [*known.counters, *known.gauges, *bucket_counters(pop, known)]
    hosts = [host.name for host in pop.hosts]
    series = context.samples.stored_series(pop.name)
    return series * retained_bytes(hosts, readings, retention, interval) if series else 0


def bucket_counters(pop: Pop, metrics: MetricNames) -> list[str]:
    """The counters of the buckets that hosts of a PoP tell of their access log, for requests of up
    to ten minutes."""
    fields = pop.views[0].metrics.fields
    if not fields.get("access_log"):
        return []
    counters = LogFormat(fields["log_format"]).none().keys() & metrics.histograms.keys()
    last = bucket_of(_LONGEST_MS)
    return [bucket_name(name, number) for name in sorted(counters) for number in range(last + 1)]


def memory_text(context: Context, pop: Pop) -> str:
    """How much memory samples may take."""
    fleet = [context.inventory.pop(name) for name in context.inventory.pop_names()]
    kept = duration(context.config.sample_retention)
    try:
        of_pop, all_pops = (megabytes(most_bytes(context, pops)) for pops in ([pop], fleet))
    except EdgetuneError as error:
        return f"how much memory they take is not known: {error}"
    return f"{kept} of them take at most {of_pop}, and of all PoPs {all_pops}"


def megabytes(number: int) -> str:
    """So many bytes, rounded up."""
    return f"{math.ceil(number / 1e6):,} MB"


def _faster(context: Context) -> dict[str, list[float]]:
    """By PoP, the intervals of rollouts under way that are shorter than the rule's."""
    intervals: dict[str, list[float]] = {}
    for head in (head for head in living_heads(context) if head.state not in ENDED):
        # A damaged plan stops its own rollout, and nobody samples for that.
        with suppress(RefusedError):
            interval = load_plan(context, head.plan).options.interval
            if interval < SAMPLED_EVERY:
                intervals.setdefault(head.pop, []).append(interval)
    return intervals


# A float of 8 bytes, in base64.
_READING = 8 * 4 / 3
# A bucket, of which three bytes of four say something up to 16 million requests; and its number.
_BUCKET, _NUMBER = 3 * 4 / 3, 5
# Quotes, comma and space around a text in JSON, and the 36 characters of a boot's id.
_AROUND, _BOOT = 4, 36
# Of a document: braces, the names of its fields, the time; of a column: name, quotes, padding.
_DOCUMENT, _COLUMN = 120, 8
# Of a member of a sorted set: its entry in the skip list and in the hash table, and the header of
# its string. Allocators of Redis round sizes up by a quarter at most (jemalloc's size classes).
_MEMBER, _ROUNDED = 160, 1.25


def retained_bytes(
    hosts: Sequence[str], readings: Collection[str], retention: float, interval: float
) -> int:
    """Bytes of all sweeps of these hosts in ``retention`` seconds, one each ``interval`` seconds,
    with each of these readings."""
    names = sum(len(host) + _AROUND + _BOOT + _AROUND for host in hosts)
    plain = [name for name in readings if BUCKET not in name]
    columns = sum(math.ceil(len(hosts) * _READING) + len(name) + _COLUMN for name in plain)
    columns += (len(readings) - len(plain)) * math.ceil(len(hosts) * _BUCKET + _NUMBER)
    uptime = math.ceil(len(hosts) * _READING)
    sweep = math.ceil((_DOCUMENT + names + columns + uptime) * _ROUNDED + _MEMBER)
    return sweep * math.ceil(retention / interval + 1)
