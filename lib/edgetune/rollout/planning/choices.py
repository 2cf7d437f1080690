# SPDX-License-Identifier: Apache-2.0
"""Which hosts of a PoP a rollout is about, and what of its metrics the PoP's source lacks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from edgetune.agent.log_format import ALL_COUNTERS, LogFormat
from edgetune.agent.vocabulary.grammar import nearest
from edgetune.agent.vocabulary.kind import SYSTEMS
from edgetune.base.documents.options import Options
from edgetune.base.errors import InputError, RefusedError
from edgetune.base.names import listed
from edgetune.intent.metrics.catalogue import WORK, Catalogue
from edgetune.intent.tuning import Tuning
from edgetune.site.inventory import Host, Pop

SIDES = {"linux": "from", "freebsd": "freebsd"}
"""Where the file of a metric says what an agent reads on hosts with an operating system."""


def refuse_untold(pop: Pop, tuning: Tuning, without_packets: bool, metrics: Catalogue) -> None:
    """RefusedError names each metric whose readings no source of a PoP has.

    The first source gives counters and gauges, the others gauges. The baseline would find it; here
    nothing was waited for yet. A PoP with a source that no metric names is left to the baseline.
    InputError names what is wrong with a file of a metric, used or not.
    """
    metrics.check()
    first, *others = (_told(view, metrics) for view in pop.views)
    if not (first and all(others)):
        return
    told = {*first, *(name for more in others for name in more if metrics.readings[name].is_gauge)}
    lacks = {
        name: [reading for reading in tuning.metrics[name].needed if reading not in told]
        for name in _needed(tuning, without_packets)
    }
    named = [f"{name} ({', '.join(readings)})" for name, readings in lacks.items() if readings]
    if named:
        of_log = {own for readings in lacks.values() for own in readings} & {*ALL_COUNTERS}
        log = ", name the access log there (access_log, log_format)" if of_log else ""
        raise RefusedError(
            f"{_sources(pop)} not have all of {', '.join(named)}, "
            f"which {tuning.name} is judged by: say where it has them in the files of these "
            f"metrics, or name another source in pops.{pop.name}.metrics of the inventory{log}"
        )


def _told(view: Pop, metrics: Catalogue) -> Collection[str]:
    """The readings that a source of a PoP has; of an access log, what its format has."""
    told = metrics.told_by(view.metrics.source)
    if view.metrics.source != "hosts":
        return told
    own = view.metrics.fields
    logged = LogFormat(own["log_format"]).none() if own.get("access_log") else {}
    return [name for name in told if name not in ALL_COUNTERS or name in logged]


def refuse_untold_by_system(
    pop: Pop,
    tuning: Tuning,
    without_packets: bool,
    metrics: Catalogue,
    systems: Mapping[str, str],
) -> None:
    """RefusedError names each metric that hosts do not have by their operating system.

    ``systems`` has that of each host. Hosts tell so only where they are the one source of a PoP.
    """
    if {view.metrics.source for view in pop.views} != {"hosts"}:
        return
    told = metrics.told_by("hosts")
    for system in sorted({*systems.values()} & {*SIDES}):
        lacking = [
            name
            for name in _needed(tuning, without_packets)
            if any(SIDES[system] not in told[own] for own in tuning.metrics[name].needed)
        ]
        if lacking:
            hosts = [name for name, own in systems.items() if own == system]
            raise RefusedError(
                f"hosts with {SYSTEMS[system]} do not have {listed(lacking)}, which {tuning.name} "
                f"is judged by: {listed(hosts)}; leave them out (only=, exclude=), or judge it by "
                "what they have"
            )


def _sources(pop: Pop) -> str:
    names = [view.metrics.source for view in pop.views]
    if len(names) == 1:
        return f"the metric source {names[0]} of {pop.name} does"
    return f"the metric sources {', '.join(names)} of {pop.name} do"


def _needed(tuning: Tuning, without_packets: bool) -> Iterator[str]:
    yield tuning.intent.metric
    guards = {guard.metric: guard.optional for guard in tuning.guards}
    for name, optional in {WORK: False, **guards}.items():
        if not (optional or (name == WORK and without_packets)):
            yield name


def chosen_hosts(pop: Pop, options: Options) -> list[Host]:
    """In the order of the inventory; all of the PoP where neither option is given.

    InputError names a word that means no host, or two things. RefusedError if no host is left.
    """
    left_out = {pop.host(name).name for name in options.exclude}
    kept = {name for word in options.only for name in _named(pop, word)}
    named = [host for host in pop.hosts if not options.only or host.name in kept]
    hosts = [host for host in named if host.name not in left_out]
    if not hosts:
        raise RefusedError(f"exclude= leaves no host of {pop.name}: take some names out of it")
    return hosts


def _named(pop: Pop, word: str) -> list[str]:
    """Names of the hosts that a word of ``only`` means."""
    host = [host.name for host in pop.hosts if host.name == word]
    rack = [host.name for host in pop.hosts if host.rack and host.rack == word]
    if host and rack and host != rack:
        text = f"{word!r} is a host and a rack of {pop.name}: give the names of the hosts"
        raise InputError("parameter", "only", text)
    if not host and not rack:
        text = f"{word!r} is no host and no rack of {pop.name}{_known(pop, word)}"
        raise InputError("parameter", "only", text)
    return host or rack


def _known(pop: Pop, word: str) -> str:
    racks = sorted({host.rack for host in pop.hosts if host.rack})
    close = nearest(word, [*(host.name for host in pop.hosts), *racks])
    if close:
        return f" (did you mean {close}?)"
    return f"; its racks: {listed(racks)}" if racks else "; the inventory names no rack there"
