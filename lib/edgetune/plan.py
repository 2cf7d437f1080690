# SPDX-License-Identifier: Apache-2.0
"""What a tuning would do to one PoP: groups, batches, diffs. Pure; nothing is asked or touched."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from edgetune import PACK, PLAN_SCHEMA
from edgetune.documents import read_document
from edgetune.errors import InputError, NothingToDo, RefusedError
from edgetune.inventory import Host, Pop
from edgetune.kinds import KINDS
from edgetune.metrics.catalogue import METRICS, WORK
from edgetune.tuning import DISRUPTIONS, Guard, Tuning, digest_of

Document = dict[str, Any]

MOST_WAYS = 10**18
"""Of drawing the groups that are told apart: Python refuses to write 4,300 digits, MongoDB 20."""

DRAWN_BY = 2
"""How the judge draws other groups for plans of today (see ``judge.permutation``)."""
SHARE_OF_WORK = Guard(WORK, 0.05)
"""A guard of every rollout, but for tunings that name a margin of their own: hosts that do less of
the PoP's work use less CPU time, too, and drop less."""

LEAST_SAMPLES = 3
"""Samples that a look needs at least."""
_MOST_SEED = 2**63 - 1
_BATCH_SECONDS = {"live": 5, "restart": 30, "drain": 30, "reboot": 30}


@dataclass(frozen=True)
class Options:
    """What a person may choose about a rollout; times in seconds, alphas as probabilities.

    ``force`` goes on with a host whose sessions do not end; by default it is skipped.
    ``force_restart`` lets its BMC force a host that neither its operating system nor the BMC
    could restart gracefully. ``without_packets`` goes on where hosts do not count packets, though
    traffic that moves from one group to the other is not seen there.
    """

    fraction: float = 0.5
    batch_size: int = 0
    baseline: float = 86400
    soak: float = 86400
    interval: int = 60
    warmup: float = 300
    looks: int = 12
    alpha_help: float = 0.05
    alpha_harm: float = 0.05
    exclude: tuple[str, ...] = ()
    seed: int = 0
    force: bool = False
    force_restart: bool = False
    without_packets: bool = False

    def checked(self) -> Options:
        """Itself; InputError names a value out of its range."""
        _between("fraction", self.fraction, 0.05, 0.95)
        _between("batch_size", self.batch_size, 0, 10000)
        _between("interval", self.interval, 1, 3600)
        _between("baseline", self.baseline, 2 * self.interval, 30 * 86400)
        _between("soak", self.soak, LEAST_SAMPLES * self.interval + self.warmup, 30 * 86400)
        _between("warmup", self.warmup, 0, 86400)
        _between("looks", self.looks, 1, 1000)
        _between("alpha_help", self.alpha_help, 0.0001, 0.5)
        _between("alpha_harm", self.alpha_harm, 0.0001, 0.5)
        _between("seed", self.seed, -_MOST_SEED, _MOST_SEED)
        return self


def _between(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        # An integer beyond every float can be neither shown nor converted.
        shown = "the number" if abs(value) > 1e300 else f"{value:g}"
        raise InputError("parameter", name, f"{shown} is not between {low:g} and {high:g}")


def make_plan(
    pop: Pop,
    tuning: Tuning,
    rendered: Mapping[str, Sequence[Mapping[str, Any]]],
    observed: Mapping[str, Sequence[Mapping[str, Any]]],
    options: Options,
    proofs: Mapping[str, Mapping[str, str]],
    restarts: Mapping[str, Mapping[str, Any]],
) -> Document:
    """The plan as a JSON document with its digest.

    ``rendered`` holds each host's settings, ``observed`` what its agent and its BMC answered to
    ``plan``, ``proofs`` what shows that each is one machine (`rollout.identity`), ``restarts``
    how the BMC of a host may restart it, as ``{system, serial, sku, resets}``.
    Optional settings that a host does not support are left out there, with the reason.
    RefusedError when a setting is unsupported, nothing is to do, the PoP is too small to split or
    to keep its floor, or a metric asks for a health check that it does not have.
    """
    _refuse_without_health(pop, tuning)
    left_out = {host: _left_out(tuning, observed[host]) for host in rendered}
    rendered = {host: _without(left_out[host], rendered[host]) for host in rendered}
    observed = {host: _without(left_out[host], observed[host]) for host in rendered}
    _refuse_unsupported(observed)
    touched = [host for host in rendered if _changes(observed[host])]
    if not touched:
        raise NothingToDo(f"nothing to do: every host of {pop.name} is as {tuning.name} wants it")
    disruption = _disruption(tuning, [observed[host] for host in touched])
    strata = _split(pop, touched, options)
    out = _most_at_once(pop, disruption, options)
    document: Document = {
        "schema": PLAN_SCHEMA,
        "pop": pop.name,
        "tuning": {"name": tuning.name, "version": tuning.version, "digest": tuning.digest},
        "intent": asdict(tuning.intent),
        "guards": [asdict(guard) for guard in _guards(tuning)],
        "options": {**asdict(options), "exclude": list(options.exclude)},
        "disruption": disruption,
        "restarts": _restarts(touched, disruption, restarts),
        "hosts_in_pop": len(pop.hosts),
        "must_serve": pop.must_serve,
        "strata": strata,
        "draws": DRAWN_BY,
        "unchanged": [host for host in rendered if not _changes(observed[host])],
        "profiles": _profiles(touched, rendered, observed, left_out),
        "machines": {host: dict(proofs[host]) for host in touched},
        "inventory": digest_of([_identity(host) for host in pop.hosts]),
    }
    document["batches"], document["promote_batches"] = _batches(strata, out, disruption)
    document["assignments"] = assignments(strata)
    _refuse_powerless(document, options)
    document["seconds"] = _seconds(document, pop, options)
    document["digest"] = digest_of(document)
    return document


def _guards(tuning: Tuning) -> list[Guard]:
    named = {tuning.intent.metric, *(guard.metric for guard in tuning.guards)}
    return [*tuning.guards, *([] if WORK in named else [SHARE_OF_WORK])]


def groups(plan: Mapping[str, Any]) -> dict[str, list[str]]:
    """Hosts of the ``test`` and of the ``control`` group."""
    return both_groups(plan["strata"])


def both_groups(strata: Mapping[str, Mapping[str, Sequence[str]]]) -> dict[str, list[str]]:
    """The same of some strata."""
    return {g: [host for own in strata.values() for host in own[g]] for g in ("test", "control")}


def profile_of(plan: Mapping[str, Any], host: str) -> Mapping[str, Any]:
    """The settings of one host and what stood there when the plan was made."""
    for profile in plan["profiles"]:
        if host in profile["hosts"]:
            found: Mapping[str, Any] = profile
            return found
    raise RefusedError(f"the plan does not hold {host}")


def settings_by_agent(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those settings, or rows of a plan about them, that the agent of a host takes."""
    return [row for row in rows if not KINDS[_kind_of(row)].by_bmc]


def settings_by_bmc(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those that its BMC takes."""
    return [row for row in rows if KINDS[_kind_of(row)].by_bmc]


def _kind_of(row: Mapping[str, Any]) -> str:
    return str(row["id"]).partition(":")[0]


def planned_looks(options: Mapping[str, Any]) -> int:
    """How often a soak is looked at: as often as asked for, but over three samples at least."""
    room = (options["soak"] - options["warmup"]) / (LEAST_SAMPLES * options["interval"])
    return max(1, min(int(options.get("looks", Options.looks)), int(room)))


def assignments(strata: Mapping[str, Mapping[str, Sequence[str]]]) -> int:
    """In how many ways the groups could have been drawn (up to MOST_WAYS)."""
    ways = 1
    for stratum in strata.values():
        test, control = len(stratum["test"]), len(stratum["control"])
        ways = min(ways * math.comb(test + control, test), MOST_WAYS)
    return ways


def _changes(settings: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [setting for setting in settings if setting["status"] == "change"]


def _left_out(tuning: Tuning, observed: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {
        row["id"]: row.get("reason") or "unsupported"
        for row in observed
        if row["status"] == "unsupported" and tuning.setting_of(row["id"]).optional
    }


def _without(
    left_out: Mapping[str, str], rows: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    return [row for row in rows if row["id"] not in left_out]


def _refuse_without_health(pop: Pop, tuning: Tuning) -> None:
    """The baseline would find it; here nothing was waited for yet."""
    needed = [tuning.intent.metric]
    needed += [guard.metric for guard in tuning.guards if not guard.optional]
    asking = [metric for metric in dict.fromkeys(needed) if METRICS[metric].asks_service]
    if asking and not pop.health:
        raise RefusedError(
            f"no host of {pop.name} can measure {', '.join(asking)}, which {tuning.name} is judged "
            f"by: pops.{pop.name}.health of the inventory is missing"
        )


def _refuse_unsupported(observed: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    problems = [
        f"{host}: {setting['id']}: {setting.get('reason') or 'unsupported'}"
        for host, settings in observed.items()
        for setting in settings
        if setting["status"] == "unsupported"
    ]
    if problems:
        raise RefusedError("; ".join(problems[:3]) + _more(len(problems) - 3))


def _more(count: int) -> str:
    return f"; and {count} more" if count > 0 else ""


def _disruption(tuning: Tuning, observed: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    changed = {setting["id"] for settings in observed for setting in _changes(settings)}
    asked = [tuning.setting_of(id).disruption for id in changed]
    return max(asked, key=DISRUPTIONS.index)


def _split(pop: Pop, touched: Sequence[str], options: Options) -> dict[str, dict[str, list[str]]]:
    by_hardware: dict[str, list[str]] = {}
    for name in touched:
        by_hardware.setdefault(pop.host(name).hardware or "any", []).append(name)
    dice = random.Random(options.seed)
    strata = {}
    for hardware in sorted(by_hardware):
        hosts = sorted(by_hardware[hardware])
        dice.shuffle(hosts)
        size = min(max(round(options.fraction * len(hosts)), 1), len(hosts) - 1)
        strata[hardware] = {"test": hosts[:size], "control": hosts[size:]}
    return strata


def _restarts(
    touched: Sequence[str], disruption: str, restarts: Mapping[str, Mapping[str, Any]]
) -> Document:
    """Of hosts that are to reboot, how their BMCs may restart those that do not."""
    asked = touched if disruption == "reboot" else ()
    return {host: dict(restarts[host]) for host in asked if host in restarts}


def _identity(host: Host) -> list[Any]:
    bmc = [host.bmc.address, host.bmc.system] if host.bmc else []
    bmc += [host.bmc.machine] if host.bmc and host.bmc.machine else []
    return [host.name, host.address, host.port, host.server, *bmc]


def _most_at_once(pop: Pop, disruption: str, options: Options) -> int:
    spare = len(pop.hosts) - pop.must_serve
    if disruption == "live":
        spare = len(pop.hosts)
    if spare < 1:
        raise RefusedError(
            f"{pop.name} is too small to keep its floor: {pop.must_serve} of its "
            f"{len(pop.hosts)} hosts must serve, so none can be drained"
        )
    return min(spare, options.batch_size or spare)


def _batches(
    strata: Mapping[str, Mapping[str, Sequence[str]]], size: int, disruption: str
) -> tuple[list[Document], list[Document]]:
    test = _cut([host for stratum in strata.values() for host in stratum["test"]], size)
    control = _cut([host for stratum in strata.values() for host in stratum["control"]], size)
    changes = [_batch("test", "change", hosts) for hosts in test]
    # A tuning that reboots is compared with control hosts that rebooted at the same time.
    shams = [_batch("control", "sham", hosts) for hosts in control if disruption == "reboot"]
    promotions = [_batch("control", "change", hosts) for hosts in control]
    return _interleave(changes, shams), promotions


def _cut(hosts: Sequence[str], size: int) -> list[list[str]]:
    rest = range(1, len(hosts), size)
    return [list(hosts[:1]), *(list(hosts[start : start + size]) for start in rest)][: len(hosts)]


def _batch(group: str, what: str, hosts: Sequence[str]) -> Document:
    return {"group": group, "what": what, "hosts": list(hosts)}


def _interleave(one: list[Document], other: list[Document]) -> list[Document]:
    woven: list[Document] = []
    for index in range(max(len(one), len(other))):
        woven += one[index : index + 1] + other[index : index + 1]
    return woven


def _profiles(
    touched: Sequence[str],
    rendered: Mapping[str, Sequence[Mapping[str, Any]]],
    observed: Mapping[str, Sequence[Mapping[str, Any]]],
    left_out: Mapping[str, Mapping[str, str]],
) -> list[Document]:
    # Hosts that are alike share one entry, so that the record of a large PoP stays small.
    found: dict[str, Document] = {}
    for host in touched:
        rows = [_shown(row) for row in observed[host]]
        body: Document = {"settings": list(rendered[host]), "before": rows}
        body["left_out"] = dict(left_out[host])
        found.setdefault(digest_of(body), {**body, "hosts": []})["hosts"].append(host)
    return list(found.values())


def _shown(row: Mapping[str, Any]) -> Document:
    shown = {key: row.get(key) for key in ("id", "status", "runtime", "persistent", "wanted")}
    return {**shown, "attributes": row["attributes"]} if "attributes" in row else shown


def _refuse_powerless(plan: Mapping[str, Any], options: Options) -> None:
    least = 1 / plan["assignments"]
    wanted = min(options.alpha_help, options.alpha_harm)
    if least > wanted:
        sizes = ", ".join(
            f"{name}: {len(stratum['test'])} against {len(stratum['control'])}"
            for name, stratum in plan["strata"].items()
        )
        raise RefusedError(
            f"{plan['pop']} is too small to split: {sizes} can be drawn in {plan['assignments']} "
            f"ways, so no p-value below {least:.3f} is possible, and {wanted:g} is asked for"
        )


def _seconds(plan: Mapping[str, Any], pop: Pop, options: Options) -> float:
    each = float(_BATCH_SECONDS[plan["disruption"]])
    each += pop.reboot_time if plan["disruption"] == "reboot" else 0
    batches = len(plan["batches"]) + len(plan["promote_batches"])
    return float(round(options.baseline + options.soak + batches * each))


def read_plan(text: str | None, digest: str) -> Document:
    """A stored plan; RefusedError if there is none or it is not the one of that digest."""
    if text is None:
        raise RefusedError(f"there is no plan {digest}; make one with plan_rollout")
    document: Document = read_document(f"{PACK}.plan.{digest}", text)
    body = {key: value for key, value in document.items() if key != "digest"}
    if document.get("digest") != digest or digest_of(body) != digest:
        raise RefusedError(f"the stored plan is not the one with digest {digest}")
    return document
