# SPDX-License-Identifier: Apache-2.0
"""What a tuning would do to one PoP: groups, batches, diffs. Pure; nothing is asked or touched."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar

from edgetune import PLAN_SCHEMA
from edgetune.agent.vocabulary.kind import DISRUPTIONS, kind_of
from edgetune.agent.vocabulary.kinds import KINDS
from edgetune.base.documents.metric import Metric
from edgetune.base.documents.options import MOST_ALPHA, Options
from edgetune.base.documents.plan import (
    DRAWN_BY,
    Groups,
    Guard,
    Plan,
    PlannedBatch,
    PlannedTuning,
    Profile,
    Proof,
    Restart,
    Strata,
    assignments,
)
from edgetune.base.documents.reading import digest_of, encoded
from edgetune.base.documents.settings import HostSetting, SettingRow
from edgetune.base.errors import InputError, NothingToDo, RefusedError
from edgetune.intent.metrics.catalogue import WORK
from edgetune.intent.tuning import Tuning
from edgetune.site.inventory import Host, Pop

SHARE_OF_WORK = Guard(WORK, 0.05)
"""A guard of every rollout, but for tunings that name another margin: hosts that do less of
the PoP's work use less CPU time, too, and drop less."""
_BATCH_SECONDS = {"live": 5, "restart": 30, "drain": 30, "reboot": 30}


def draw_groups(
    pop: Pop,
    touched: Sequence[str],
    options: Options,
    kernels: Mapping[str, str],
    systems: Mapping[str, str],
) -> dict[str, Groups]:
    """The groups of each stratum, drawn among the ``touched`` hosts by the seed of the options.

    A stratum is of one hardware and operating system, and of one kernel where ``kernels`` (by host)
    differ within it. Strata of kernels make a comparison sharper, and a permutation test holds
    without them. So a PoP that they leave too few ways to be drawn in has none of these. Hosts with
    different ``systems`` (by host) are never compared: what they count is not the same.
    """
    strata = _drawn(pop, touched, options, systems, kernels)
    if 1 / assignments(strata) <= min(options.alpha_benefit, options.alpha_harm):
        return strata
    return _drawn(pop, touched, options, systems)


def _drawn(
    pop: Pop, touched: Sequence[str], options: Options, *facts: Mapping[str, str]
) -> dict[str, Groups]:
    strata_hosts = _by_stratum(pop, touched, facts)
    dice = random.Random(options.seed)
    strata = {}
    for stratum in sorted(strata_hosts):
        hosts = sorted(strata_hosts[stratum])
        dice.shuffle(hosts)
        size = test_hosts(len(hosts), options)
        strata[stratum] = Groups(hosts[:size], hosts[size:])
    return strata


def _by_stratum(
    pop: Pop, touched: Sequence[str], facts: Sequence[Mapping[str, str]]
) -> dict[str, list[str]]:
    """The hosts that are compared with each other, by what they have in common."""
    alike: dict[str, list[str]] = {}
    for name in touched:
        alike.setdefault(pop.host(name).hardware, []).append(name)
    strata: dict[str, list[str]] = {}
    for hardware, hosts in alike.items():
        # A fact that all of them share does not name a stratum.
        apart = [known for known in facts if len({known.get(host, "") for host in hosts}) > 1]
        for host in hosts:
            common = [hardware or "any", *(known.get(host, "") for known in apart)]
            strata.setdefault(", ".join(filter(None, common)), []).append(host)
    return strata


def test_hosts(hosts: int, options: Options) -> int:
    """How many of so many hosts of one hardware form the test group."""
    return min(max(round(options.test_fraction * hosts), 1), hosts - 1)


Row = TypeVar("Row", HostSetting, SettingRow)


def make_plan(
    pop: Pop,
    tuning: Tuning,
    rendered: Mapping[str, Sequence[HostSetting]],
    observed: Mapping[str, Sequence[SettingRow]],
    options: Options,
    proofs: Mapping[str, Proof],
    restarts: Mapping[str, Restart],
    kernels: Mapping[str, str] = MappingProxyType({}),
    systems: Mapping[str, str] = MappingProxyType({}),
    beside: Mapping[str, Metric] = MappingProxyType({}),
) -> Plan:
    """The plan, with its digest.

    ``rendered`` holds each host's settings, ``observed`` what its agent and its BMC answered to
    ``plan``, ``proofs`` what shows that each is one machine (`rollout.identity`), ``restarts``
    how the BMC of a host may restart it, ``kernels`` the release of the kernel that each runs,
    ``systems`` its operating system, and ``beside`` metrics that are shown and not judged.
    Optional settings that a host does not support are left out there, with the reason.
    RefusedError when a setting is unsupported, nothing is to do, the PoP is too small to split or
    to keep its ``min_in_service``, or a metric asks for a health check that it does not have.
    InputError when no batch is left behind ``pause_after``.
    """
    _refuse_without_health(pop, tuning)
    left_out = {host: _left_out(tuning, observed[host]) for host in rendered}
    rendered = {host: _without(left_out[host], rendered[host]) for host in rendered}
    observed = {host: _without(left_out[host], observed[host]) for host in rendered}
    _refuse_unsupported(observed)
    touched = [host for host in rendered if _changes(observed[host])]
    if not touched:
        hosts = f"{'every host that only= names' if options.only else 'every host'} of {pop.name}"
        raise NothingToDo(f"nothing to do: {hosts} is as {tuning.name} wants it")
    changed = {row.id for host in touched for row in _changes(observed[host])}
    disruption = max((tuning.setting_of(id).disruption for id in changed), key=DISRUPTIONS.index)
    strata = draw_groups(pop, touched, options, kernels, systems)
    out = most_at_once(pop, disruption, options)
    batches, promote_batches = _batches(pop, strata, out, disruption)
    count = len(batches) + len(promote_batches)
    # A person who asked to be waited for would wait in vain.
    if options.pause_after >= count:
        text = f"there are {count} batches, and one has to be left: give at most {count - 1}"
        raise InputError("parameter", "pause_after", text)
    named = {tuning.intent.metric, *(guard.metric for guard in tuning.guards)}
    plan = Plan(
        schema=PLAN_SCHEMA,
        pop=pop.name,
        tuning=PlannedTuning(tuning.name, tuning.version, tuning.digest),
        intent=tuning.intent,
        guards=[*tuning.guards, *([] if WORK in named else [SHARE_OF_WORK])],
        definitions={**beside, **tuning.metrics},
        beside=[name for name in beside if name not in tuning.metrics],
        options=options,
        disruption=disruption,
        # How their BMCs may restart those that do not reboot themselves.
        restarts={h: restarts[h] for h in touched if disruption == "reboot" and h in restarts},
        hosts_in_pop=len(pop.hosts),
        must_serve=pop.must_serve,
        strata=strata,
        draws=DRAWN_BY,
        unchanged=[host for host in rendered if not _changes(observed[host])],
        profiles=_profiles(touched, rendered, observed, left_out),
        machines={host: proofs[host] for host in touched},
        inventory=digest_of([_identity(host) for host in pop.hosts]),
        batches=batches,
        promote_batches=promote_batches,
        assignments=assignments(strata),
        seconds=float(
            round(options.baseline + options.soak + count * batch_seconds(pop, disruption))
        ),
    )
    _refuse_powerless(plan)
    return plan.signed()


def settings_by_agent(rows: Iterable[Row]) -> list[Row]:
    """Those settings, or rows of a plan about them, that the agent of a host takes."""
    return [row for row in rows if not KINDS[kind_of(row.id)].by_bmc]


def settings_by_bmc(rows: Iterable[Row]) -> list[Row]:
    """Those that its BMC takes."""
    return [row for row in rows if KINDS[kind_of(row.id)].by_bmc]


def _changes(rows: Iterable[SettingRow]) -> list[SettingRow]:
    return [row for row in rows if row.status == "change"]


def _left_out(tuning: Tuning, observed: Sequence[SettingRow]) -> dict[str, str]:
    return {
        row.id: row.why
        for row in observed
        if row.status == "unsupported" and tuning.setting_of(row.id).optional
    }


def _without(left_out: Container[str], rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row.id not in left_out]


def _refuse_without_health(pop: Pop, tuning: Tuning) -> None:
    """The baseline would find it; here nothing was waited for yet."""
    needed = [tuning.intent.metric]
    needed += [guard.metric for guard in tuning.guards if not guard.optional]
    asking = [metric for metric in dict.fromkeys(needed) if tuning.metrics[metric].asks_service]
    if asking and not pop.health:
        raise RefusedError(
            f"no host of {pop.name} can measure {', '.join(asking)}, which {tuning.name} is judged "
            f"by: pops.{pop.name}.health of the inventory is missing"
        )


def _refuse_unsupported(observed: Mapping[str, Sequence[SettingRow]]) -> None:
    problems = [
        f"{host}: {row.id}: {row.why}"
        for host, rows in observed.items()
        for row in rows
        if row.status == "unsupported"
    ]
    if problems:
        more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise RefusedError("; ".join(problems[:3]) + more)


def _identity(host: Host) -> list[str | int]:
    bmc = [host.bmc.address, host.bmc.system] if host.bmc else []
    bmc += [host.bmc.machine] if host.bmc and host.bmc.machine else []
    return [host.name, host.address, host.port, host.server, *bmc]


def most_at_once(pop: Pop, disruption: str, options: Options) -> int:
    """How many hosts of a PoP a batch may have; RefusedError where none can be drained."""
    spare = len(pop.hosts) - pop.must_serve
    if disruption == "live":
        spare = len(pop.hosts)
    if spare < 1:
        raise RefusedError(
            f"{pop.name} is too small to keep its min_in_service: {pop.must_serve} of its "
            f"{len(pop.hosts)} hosts must serve, so none can be drained; "
            f"lower pops.{pop.name}.min_in_service of the inventory"
        )
    return min(spare, options.batch_size or spare)


def _batches(
    pop: Pop, strata: Strata, size: int, disruption: str
) -> tuple[list[PlannedBatch], list[PlannedBatch]]:
    apart = pop if disruption != "live" else replace(pop, fails_together=())
    test = _cut(apart, [host for stratum in strata.values() for host in stratum.test], size)
    control = _cut(apart, [host for stratum in strata.values() for host in stratum.control], size)
    changes = [PlannedBatch("test", "change", hosts) for hosts in test]
    # A tuning that reboots is compared with control hosts that rebooted at the same time.
    shams = [PlannedBatch("control", "sham", hosts) for hosts in control if disruption == "reboot"]
    promotions = [PlannedBatch("control", "change", hosts) for hosts in control]
    woven: list[PlannedBatch] = []
    for index in range(max(len(changes), len(shams))):
        woven += changes[index : index + 1] + shams[index : index + 1]
    return woven, promotions


def batch_seconds(pop: Pop, disruption: str) -> float:
    """How long one batch takes, as plans reckon."""
    return _BATCH_SECONDS[disruption] + (pop.reboot_time if disruption == "reboot" else 0)


def expected_batches(pop: Pop, disruption: str, options: Options) -> tuple[int, int]:
    """How many batches there are before the verdict and after it where every host is to change.

    RefusedError as of ``make_plan`` where the PoP is too small for one.
    """
    size = most_at_once(pop, disruption, options)
    names = [host.name for host in pop.hosts]
    first = test_hosts(len(names), options)
    strata = {"": Groups(names[:first], names[first:])}
    changes, promotes = _batches(pop, strata, size, disruption)
    return len(changes), len(promotes)


def _cut(pop: Pop, hosts: Sequence[str], size: int) -> list[list[str]]:
    """In their order, the first one alone; a host that would take too much of the PoP with those
    before it waits for a later batch."""
    batches, rest = [list(hosts[:1])], list(hosts[1:])
    while rest:
        batch: list[str] = []
        for host in rest:
            if len(batch) < size and not pop.takes_too_many((), [*batch, host]):
                batch.append(host)
        batches.append(batch)
        rest = [host for host in rest if host not in batch]
    return batches[: len(hosts)]


def _profiles(
    touched: Sequence[str],
    rendered: Mapping[str, Sequence[HostSetting]],
    observed: Mapping[str, Sequence[SettingRow]],
    left_out: Mapping[str, Mapping[str, str]],
) -> list[Profile]:
    # Hosts that are alike share one entry, so that the record of a large PoP stays small.
    profiles: dict[str, Profile] = {}
    for host in touched:
        # Why a setting cannot be changed stands where it is left out.
        before = [replace(row, reason=None) for row in observed[host]]
        profile = Profile([*rendered[host]], before, [], dict(left_out[host]))
        profiles.setdefault(digest_of(encoded(profile)), profile).hosts.append(host)
    return list(profiles.values())


def _refuse_powerless(plan: Plan) -> None:
    least = 1 / plan.assignments
    wanted = min(plan.options.alpha_benefit, plan.options.alpha_harm)
    if least > wanted:
        sizes = ", ".join(
            f"{name}: {len(stratum.test)} against {len(stratum.control)}"
            for name, stratum in plan.strata.items()
        )
        part = f"what only= leaves of {plan.pop}" if plan.options.only else plan.pop
        raise RefusedError(
            f"{part} is too small to split: {sizes} can be drawn in {plan.assignments} "
            f"ways, so no p-value below {least:.3f} is possible, and {wanted:g} is asked for; "
            f"{_more_or_less_sure(plan.options, least)}"
        )


def _more_or_less_sure(options: Options, least: float) -> str:
    """What a person can do about groups that are too small."""
    asked = {"alpha_benefit": options.alpha_benefit, "alpha_harm": options.alpha_harm}
    enough = math.ceil(least * 100) / 100
    words = " ".join(f"{name}={enough:g}" for name, alpha in asked.items() if alpha < least)
    wanted = min(options.alpha_benefit, options.alpha_harm)
    ways = ((n, math.comb(n, test_hosts(n, options))) for n in itertools.count(2))
    needed = next(n for n, drawn in ways if 1 / drawn <= wanted)
    hosts = f"take at least {needed} hosts of like hardware"
    return f"{hosts}, or be less sure: {words}" if enough <= MOST_ALPHA else hosts
