# SPDX-License-Identifier: Apache-2.0
"""Whether the promises were kept, from what hosts, load balancer and clients show.

It knows nothing of edgetune but what it promises: all that it is told of a rollout is how it ended
and which hosts it named. A fault explains losses only in its own window; a request is excused when
a window lies somewhere between its start and its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.chaos.sight import HostState, Sight

# What the runtime value, the stored value, the journal and the boot hook are kept in.
OURS = (
    "proc/sys/net/core/somaxconn",
    "etc/sysctl.d/90-edgetune-",
    "var/lib/edgetune/",
    "etc/init.d/S99edgetune",
)
STOP_SECONDS = 4.0  # what is under way when everything is stopped may take this long to end
CHECK_SECONDS = 5.0  # a load balancer needs some checks until it knows who is down
LB_SECONDS = 1.5  # with a health check that passes, a server stays up for longer


@dataclass(frozen=True)
class Broken:
    """One promise that was not kept; `when` is in seconds since the epoch, None for the end."""

    promise: str
    what: str
    when: float | None = None


@dataclass
class Window:
    """A time in which a fault explains losses; `end` is None as long as it lasts."""

    start: float
    end: float | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """Its start, and its end, for ever if it lasts."""
        return self.start, float("inf") if self.end is None else self.end

    def meets(self, start: float, end: float) -> bool:
        return end >= self.start and (self.end is None or start <= self.end)


@dataclass
class Faults:
    """What the faults of a run explain: lost requests, answers of hosts that were not ready,
    reboots, each with its host, hosts that are quarantined, when the load balancer forgot its
    states, and when all was stopped, each with the hosts before and after.

    `exchanged` says that the inventory was wrong before any plan was made.
    """

    lost: list[Window] = field(default_factory=list)
    unready: list[Window] = field(default_factory=list)
    boots: list[tuple[str, Window]] = field(default_factory=list)
    quarantined: set[str] = field(default_factory=set)
    forgot: list[float] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    exchanged: bool = False


@dataclass(frozen=True)
class Stop:
    """All was stopped from `start` to `end`."""

    start: float
    end: float
    before: Mapping[str, HostState | None]
    after: Mapping[str, HostState | None]


@dataclass(frozen=True)
class End:
    """How a rollout ended and whom it named; `wanted` is the value that the tuning sets.

    `outcome` is a state of the rollout, "none" when none was begun, "stuck" when it never ended.
    """

    outcome: str
    tuning: str
    wanted: str
    quarantined: Collection[str] = ()
    skipped: Collection[str] = ()


def requests(
    lost: Sequence[Mapping[str, Any]], unready: Sequence[Mapping[str, Any]], faults: Faults
) -> Iterator[Broken]:
    """No request is lost, and none answered by a host that is not ready."""
    for row in lost:
        start, end = row["time"] - row["after"], row["time"]
        if not any(window.meets(start, end) for window in faults.lost):
            text = f"{row['path']} lost after {row['after']} s at {row['host']}: {row['reason']}"
            yield Broken("requests", text, end)
    for row in unready:
        if not any(window.meets(row["time"], row["time"]) for window in faults.unready):
            text = f"{row['path']} answered by {row['host']}, which was not ready"
            yield Broken("requests", text, row["time"])


def hosts(
    before: Mapping[str, HostState], after: Mapping[str, HostState | None], end: End, last: Sight
) -> Iterator[Broken]:
    """Each host ends wholly old or wholly new, in service, or quarantined and named."""
    for name, was in before.items():
        now = after[name]
        if now is None:
            if name not in end.quarantined:
                yield Broken("whole", f"{name} is off and not quarantined")
            continue
        side = side_of(was, now, end)
        yield from _plan(name, was, now)
        serves = name in last.ready() and not now.not_ready
        if name in end.quarantined:
            if serves and side == "half":
                yield Broken("whole", f"{name} is quarantined, half changed and serves")
            continue
        if side == "half":
            yield Broken("whole", f"{name} is neither old nor new: {_about(was, now)}")
        if not serves:
            where = f"{last.servers[name][0]}, {'up' if last.servers[name][1] else 'down'}"
            marker = ", says not ready" if now.not_ready else ""
            yield Broken("whole", f"{name} is {where}{marker} and not quarantined")
        yield from _side(name, side, end)


def side_of(was: HostState, now: HostState, end: End) -> str:
    """ "old", "new" or "half": what runs, what is stored and the journal have to agree."""
    if dict(now.fingerprint) == dict(was.fingerprint) and now.journals == was.journals:
        return "old" if (now.runtime, now.stored) == (was.runtime, was.stored) else "half"
    new = (end.wanted, end.wanted, {**was.journals, end.tuning: "confirmed"})
    return "new" if (now.runtime, now.stored, dict(now.journals)) == new else "half"


def min_in_service(sights: Sequence[Sight], least: int, faults: Faults) -> Iterator[Broken]:
    """Nobody is taken out of service while only `least` or fewer serve.

    Who serves is what the load balancer knows: a host that fell within the last seconds is not
    missed yet. A server that a load balancer forgot about was out before, and is no new one.
    """
    out: dict[str, float] = {}
    fell = float("-inf")
    for earlier, later in zip(sights, sights[1:]):
        forgot = any(earlier.time < at <= later.time for at in faults.forgot)
        _prove(out, earlier, later, forgot)
        taken = _taken(earlier, later)
        if forgot or earlier.ready() - later.ready() - taken:
            fell = later.time
        left = later.ready() - set(out)
        taken &= earlier.ready() - set(out)
        if taken and len(left) < least and later.time - fell > CHECK_SECONDS:
            names = ", ".join(sorted(taken))
            text = f"{names} taken out of service, {len(left)} left, {least} must stay"
            yield Broken("min_in_service", text, later.time)


def service(sights: Sequence[Sight], faults: Faults) -> Iterator[Broken]:
    """No host that serves is rebooted or changed, leaving aside what faults did.

    Both tunings of the schedules want their hosts out of service for any change.
    """
    out: dict[str, float] = {}
    for earlier, later in zip(sights, sights[1:]):
        forgot = any(earlier.time < at <= later.time for at in faults.forgot)
        _prove(out, earlier, later, forgot)
        serving = earlier.ready() - set(out)
        for name in sorted(serving & _booted(earlier, later)):
            own = [window for host, window in faults.boots if host == name]
            if not any(window.meets(later.time, later.time) for window in own):
                yield Broken("service", f"{name} booted while it was in service", later.time)
        for name in sorted(serving & (earlier.tuned ^ later.tuned)):
            yield Broken("service", f"{name} was changed while it was in service", later.time)


def untouched(sights: Sequence[Sight]) -> Iterator[Broken]:
    """Where the inventory takes one host for another, nothing is drained, changed or rebooted."""
    for earlier, later in zip(sights, sights[1:]):
        stored = sorted(f"{name} was changed" for name in earlier.tuned ^ later.tuned)
        for what in [*_moved(earlier, later), *stored]:
            yield Broken("identity", f"{what} although addresses were exchanged", later.time)


def quarantines(end: End, faults: Faults) -> Iterator[Broken]:
    """No host is quarantined that no fault has met."""
    for name in sorted(set(end.quarantined) - faults.quarantined):
        yield Broken("whole", f"{name} is quarantined, and no fault met it")


def under_way(sights: Sequence[Sight], until: float) -> Window | None:
    """From the first to the last moment in which a rollout had a host in its hands: out of
    service, or with a tuning. `until` is the end of the run; None if there was no such moment."""
    touched = [sight for sight in sights if sight.tuned or _out(sight)]
    if not touched:
        return None
    after = [sight.time for sight in sights if sight.time > touched[-1].time]
    return Window(touched[0].time, after[0] if after else until)


def _out(sight: Sight) -> bool:
    return any(admin != "ready" for admin, _ in sight.servers.values())


def changed(sights: Sequence[Sight]) -> set[str]:
    """Hosts on whose disks a tuning was stored at some time."""
    return {name for sight in sights for name in sight.tuned}


def _booted(earlier: Sight, later: Sight) -> set[str]:
    return {name for name, count in later.boots.items() if count != earlier.boots[name]}


def _prove(out: dict[str, float], earlier: Sight, later: Sight, forgot: bool) -> None:
    """Keep `out`: servers that were out when the load balancer forgot so, and since when it
    believes that they are up. One that stays up for some checks, or comes up later, really is.
    """
    came_up = set() if forgot else later.ready() - earlier.ready()
    stayed = {n for n, at in out.items() if n in earlier.ready() and later.time > at + LB_SECONDS}
    for name in came_up | stayed:
        out.pop(name, None)
    if forgot:
        out.update({n: later.time for n, (admin, _) in earlier.servers.items() if admin != "ready"})


def stopped(sights: Sequence[Sight], stops: Sequence[Stop]) -> Iterator[Broken]:
    """Between stop_all and resume_all nothing changes."""
    for stop in stops:
        for earlier, later in zip(sights, sights[1:]):
            if stop.start + STOP_SECONDS < later.time < stop.end:
                for name in _moved(earlier, later):
                    yield Broken("stop", f"{name} while all was stopped", later.time)
        for name, was in stop.before.items():
            now = stop.after[name]
            if was is not None and now is not None and was != now:
                yield Broken("stop", f"{name} changed while all was stopped: {_about(was, now)}")


def boots(
    sights: Sequence[Sight], asked: int, asked_in_all: int, faults: Faults
) -> Iterator[Broken]:
    """No host reboots more often than the rollout asks for, leaving aside what faults did."""
    first, last = sights[0].boots, sights[-1].boots
    explained = Counter(name for name, _ in faults.boots)
    own = {name: last[name] - first[name] - explained[name] for name in last}
    for name, count in own.items():
        if count > asked:
            yield Broken("once", f"{name} was rebooted {count} times, {asked} are asked for")
    if sum(own.values()) > asked_in_all:
        yield Broken("once", f"{sum(own.values())} reboots in all, {asked_in_all} are asked for")


def repeated(
    before: Mapping[str, HostState | None],
    after: Mapping[str, HostState | None],
    sights: Sequence[Sight],
    since: float,
) -> Iterator[Broken]:
    """What has ended is not changed by asking for it again."""
    for name, was in before.items():
        now = after[name]
        if was is not None and now is not None and was != now:
            yield Broken("once", f"{name} changed by asking again: {_about(was, now)}")
    for earlier, later in zip(sights, sights[1:]):
        if later.time > since:
            for what in _moved(earlier, later):
                yield Broken("once", f"{what} by asking again", later.time)


def _side(name: str, side: str, end: End) -> Iterator[Broken]:
    if end.outcome in ("rolled_back", "none") and side == "new":
        yield Broken("whole", f"{name} is new although the rollout is {end.outcome}")
    if end.outcome == "complete" and side == "old" and name not in end.skipped:
        yield Broken("whole", f"{name} is old although the rollout is complete")


def _plan(name: str, was: HostState, now: HostState) -> Iterator[Broken]:
    strange = [path for path in changed_paths(was, now) if not path.startswith(OURS)]
    if strange:
        yield Broken("plan", f"{name}: changed, and no plan showed it: {', '.join(strange)}")


def changed_paths(was: HostState, now: HostState) -> list[str]:
    paths = {**was.fingerprint, **now.fingerprint}
    return sorted(p for p in paths if was.fingerprint.get(p) != now.fingerprint.get(p))


def _about(was: HostState, now: HostState) -> str:
    journals = ", ".join(f"{name} {state}" for name, state in now.journals.items()) or "no journal"
    changed = ", ".join(changed_paths(was, now)) or "no file"
    marker = ", not ready" if now.not_ready else ""
    values = f"runs {now.runtime}, stored {now.stored or 'nothing'}"
    return f"{values}, {journals}{marker}; different: {changed}"


def _taken(earlier: Sight, later: Sight) -> set[str]:
    """Servers that somebody set to drain or maint."""
    return {
        name
        for name, (admin, _) in later.servers.items()
        if admin != "ready" and earlier.servers[name][0] == "ready"
    }


def _moved(earlier: Sight, later: Sight) -> Iterator[str]:
    for name, (admin, _) in later.servers.items():
        if admin != earlier.servers[name][0]:
            yield f"{name} became {admin}"
    for name in sorted(_booted(earlier, later)):
        yield f"{name} booted"
