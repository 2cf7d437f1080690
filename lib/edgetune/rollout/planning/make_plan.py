# SPDX-License-Identifier: Apache-2.0
"""Ask the hosts of a PoP that a rollout is about what a tuning would change there, and make the
plan of it, unless the PoP's source lacks what the tuning is judged by.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from edgetune.agent.log_format import ALL_COUNTERS, LogFormat
from edgetune.agent.vocabulary import SYSTEMS
from edgetune.base.documents.congestion import sets_congestion
from edgetune.base.documents.diagnosis import Finding
from edgetune.base.documents.host import BiosPlan, BmcFacts, HostFacts, SeenSettings
from edgetune.base.documents.metric import Metric
from edgetune.base.documents.options import Options
from edgetune.base.documents.plan import Plan, Restart
from edgetune.base.documents.reading import encoded
from edgetune.base.documents.rounds import TUNING, decisions_key, read_decisions
from edgetune.base.documents.settings import HostSetting
from edgetune.base.errors import InputError, RefusedError
from edgetune.base.fields import near
from edgetune.base.names import few, listed
from edgetune.base.sanitize import command
from edgetune.intent.metrics.catalogue import WORK, Catalogue
from edgetune.intent.plan import make_plan, settings_by_agent, settings_by_bmc
from edgetune.intent.rendering import misfits, render
from edgetune.intent.tuning import Tuning
from edgetune.net.bmc.answers import FORCED, ladder
from edgetune.net.bmc.identity import is_named, matches, mismatch
from edgetune.net.result import HostResult
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.sampling import looked_at, refuse_much_memory, refuse_short_retention
from edgetune.rollout.hosts.bios import load_journal
from edgetune.rollout.ownership.automation import sampled_every
from edgetune.rollout.planning.preflight import Subject, refuse_unfit
from edgetune.rollout.record.heads import unreadable_rollouts, unreadable_text
from edgetune.rollout.record.kept_inventory import pop_for_plan
from edgetune.rollout.store.records import value_of
from edgetune.site.inventory import Host, Pop

REQUESTS = ("health_p50", "health_p95", "health_p99")
"""Metrics that every plan shows where hosts measure them."""
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
        lacking = {own for readings in lacks.values() for own in readings}
        by_choice = {guard.metric for guard in tuning.guards} - {tuning.intent.metric}
        is_guard = all(name in by_choice for name, readings in lacks.items() if readings)
        guards = "; or make them optional in a copy of it" if is_guard else ""
        raise RefusedError(
            f"{_sources(pop)} not have all of {', '.join(named)}, "
            f"which {tuning.name} is judged by: {_way_to(pop, lacking)}{guards}"
        )


def _way_to(pop: Pop, readings: Collection[str]) -> str:
    """What a person can do so that a PoP tells these readings."""
    inventory = f"pops.{pop.name}.metrics of the inventory"
    of_log = {*readings} & {*ALL_COUNTERS}
    if of_log == {*readings} and pop.views[0].metrics.source == "hosts":
        log = "the access log of its hosts (access_log, log_format; active where they have none)"
        return f"name {log} in {inventory}"
    files = "say where it has them in the files of these metrics"
    first = "; hosts tell of an access log where they are the first one" if of_log else ""
    return f"{files}, or name another source in {inventory}{first}"


def _refuse_unread_logs(pop: Pop, tuning: Tuning, without_packets: bool, subject: Subject) -> None:
    """RefusedError names hosts that do not count the requests that the tuning is judged by."""
    if pop.views[0].metrics.source != "hosts":
        return
    needed = [*_needed(tuning, without_packets)]
    names = [name for name in needed if {*ALL_COUNTERS} & {*tuning.metrics[name].needed}]
    if names:
        lost = {h: own.why for h, own in subject.log_problems.items() if not own.are_counted}
        _refuse(lost, f"the access log, for {listed(names)} by which {tuning.name} is judged: ")


def _requests_of(pop: Pop, metrics: Catalogue) -> dict[str, Metric]:
    """The metrics of real requests that the PoP's first source tells."""
    told = _told(pop.views[0], metrics)
    return {
        name: metrics[name]
        for name in REQUESTS
        if name in metrics and {*metrics[name].needed} <= {*told}
    }


def _told(view: Pop, metrics: Catalogue) -> Collection[str]:
    """The readings that a source of a PoP has; of an access log, what its format has."""
    told = metrics.entries_of(view.metrics.source)
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
    told = metrics.entries_of("hosts")
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
    known = f"; its racks: {listed(racks)}" if racks else "; the inventory names no rack there"
    return near(word, [*(host.name for host in pop.hosts), *racks]) or known


ALIKE = "the same"
"""What a metric says of FreeBSD where hosts read it as on Linux."""
_UNPROVEN = (
    "nothing that both tell shows that it is the host's own "
    "(bmc.machine in the inventory vouches for it)"
)
_NO_WAY = "it offers no reset that restarts, but for what force_restart allows"


def make_for(context: Context, pop_name: str, tuning_name: str, options: Options) -> Plan:
    """The plan for the hosts as they are now, not kept; RefusedError if there can be none."""
    return plan_and_notes(context, pop_name, tuning_name, options)[0]


def plan_and_notes(
    context: Context,
    pop_name: str,
    tuning_name: str,
    options: Options,
    approved: Plan | None = None,
    wait: bool = False,
) -> tuple[Plan, list[Finding]]:
    """The plan for the hosts as they are now, and what the preflight found against it.

    RefusedError where that refuses the plan; what comes back with it does not.

    Of an ``approved`` plan that is made again, what BMCs that set nothing told then is kept.
    ``wait`` says that a workflow stays with the soak, and samples it.
    """
    if not pop_name or not tuning_name:
        raise InputError("parameter", "tuning" if pop_name else "pop", "is missing")
    options = options if wait else looked_at(options, sampled_every(context))
    pop = pop_for_plan(context, pop_name)
    tuning = context.tuning(tuning_name)
    refuse_untold(pop, tuning, options.without_packets, context.catalogue)
    refuse_short_retention(context, pop, options)
    refuse_much_memory(context, pop, options)
    hosts = chosen_hosts(pop, options)
    for each in unreadable_rollouts(context, pop.name):
        raise RefusedError(unreadable_text(each))
    subject = Subject(context, pop, hosts)
    absent = [Finding(text, "make it", refuses=False) for text in context.config.absent]
    notes = [*refuse_unfit(subject), *absent]
    facts = {name: answer.facts for name, answer in subject.facts.items()}
    _refuse_other_version(context, pop, tuning, facts)
    unfit = {name: "; ".join(misfits(tuning, own.data)) for name, own in subject.facts.items()}
    _refuse(dict(sorted(unfit.items())), f"{tuning.name} is not for ")
    systems = {name: known.system for name, known in facts.items()}
    refuse_untold_by_system(pop, tuning, options.without_packets, context.catalogue, systems)
    _refuse_unread_logs(pop, tuning, options.without_packets, subject)
    rendered = {name: render(tuning, answer.data) for name, answer in subject.facts.items()}
    _refuse_two_ways(context, pop, tuning)
    _refuse_without_bios(pop, tuning, hosts, facts)
    answers = ask_agents(context, tuning, hosts, rendered)
    _refuse({name: answer.error for name, answer in answers.items()})
    seen = {name: answer.read(SeenSettings).settings for name, answer in answers.items()}
    bmcs, silent = _told_by_bmcs(context, tuning, hosts, rendered)
    _refuse_other_machines(context, pop, tuning, facts, bmcs)
    for name, told in bmcs.items():
        by_bmc = told.settings if isinstance(told, BiosPlan) else []
        seen[name] = [*by_bmc, *seen.get(name, [])]
    restarts = {
        name: _restart(pop.host(name), facts[name], told, options.force_restart)
        for name, told in bmcs.items()
    }
    silent += [
        _cannot_restart(name, _NO_WAY if _is_own(pop.host(name), facts[name], told) else _UNPROVEN)
        for name, told in bmcs.items()
        if not restarts[name].resets
    ]
    if approved is not None:
        restarts = _as_approved(approved.restarts, restarts, bmcs)
    kernels = {name: known.kernel for name, known in facts.items()}
    named = {name: SYSTEMS.get(own, own) for name, own in systems.items()}
    proven = subject.proven[0]
    beside = _requests_of(pop, context.catalogue)
    made = make_plan(pop, tuning, rendered, seen, options, proven, restarts, kernels, named, beside)
    mixed = [*_mixed(context, made, named), *_several_kernels(made, kernels)]
    return made, [*notes, *mixed, *silent, *_stays_hung(made, facts)]


def _mixed(context: Context, made: Plan, systems: Mapping[str, str]) -> list[Finding]:
    """Whether one verdict is of hosts with several systems, and what these count in other ways."""
    own = sorted({systems[name] for name in made.groups.hosts})
    if len(own) < 2:
        return []
    told = context.catalogue.entries_of("hosts")
    apart = {name for name, entry in told.items() if entry.get("freebsd", ALIKE) != ALIKE}
    metrics = [
        name for name in made.metrics if apart.intersection(context.catalogue[name].readings)
    ]
    what = (
        f"hosts run {' and '.join(own)}: each is compared with its own, and the verdict is of all"
    )
    if metrics:
        what += f"; they count in other ways: {listed(metrics)}"
    return [Finding(what, "leave one of them out: only=, exclude=", refuses=False)]


def _several_kernels(made: Plan, kernels: Mapping[str, str]) -> Iterator[Finding]:
    """Hosts that are compared with each other though their kernels differ: see `draw_groups`."""
    for groups in made.strata.values():
        own = sorted({kernels[name] for name in groups.hosts})
        if len(own) > 1:
            yield Finding(
                f"hosts that are compared with each other run {listed(own)}: of each there are too "
                "few for a comparison of their own",
                "leave those of one of them out: only=, exclude=",
                refuses=False,
            )


def _refuse_two_ways(context: Context, pop: Pop, tuning: Tuning) -> None:
    """What ``tune_congestion`` tunes of a PoP is not set by a rollout there, too."""
    text = value_of(context.store, decisions_key(pop.name))
    if text is None or not sets_congestion(setting.id for setting in tuning.settings):
        return
    if read_decisions(pop.name, text).state == TUNING:
        raise RefusedError(
            f"{tuning.name} sets how connections of {pop.name} begin, which tune_congestion does "
            f"there by client prefix; {command('roll_back_congestion', pop=pop.name)} ends that"
        )


def _stays_hung(made: Plan, facts: Mapping[str, HostFacts]) -> list[Finding]:
    """Of hosts that boot another kernel, those that nobody resets where it hangs."""
    tried = [name for name in made.groups.hosts if made.tries_a_boot(name)]
    return [
        Finding(
            "it has no watchdog: where the new kernel hangs, nothing resets the host",
            f"load the driver of its watchdog, or {_other_help(made, name)}",
            name,
            refuses=False,
        )
        for name in tried
        if not facts[name].watchdog.device
        and FORCED not in (made.restarts[name].resets if name in made.restarts else ())
    ]


def _other_help(made: Plan, name: str) -> str:
    if made.options.force_restart:
        return "be ready to reset it: no BMC is known that can force its restart"
    return "give force_restart=true: its BMC then resets it"


def ask_agents(
    context: Context,
    tuning: Tuning,
    hosts: Sequence[Host],
    rendered: Mapping[str, Sequence[HostSetting]],
) -> dict[str, HostResult]:
    """What the agents see of a tuning; a host that has nothing of it to set is not asked."""
    own = {name: encoded(settings_by_agent(settings)) for name, settings in rendered.items()}
    what = {"tuning": tuning.name, "digest": tuning.digest}
    asked = [host for host in hosts if own.get(host.name)]
    return context.fleet.ask(asked, "plan", lambda host: {**what, "settings": own[host.name]})


def _told_by_bmcs(
    context: Context,
    tuning: Tuning,
    hosts: Sequence[Host],
    rendered: Mapping[str, Sequence[HostSetting]],
) -> tuple[dict[str, BmcFacts], list[Finding]]:
    """What BMCs see of a tuning, and how they may restart their machines; which tell nothing.

    A BIOS is set by its BMC alone, so each of these has to answer. A host that only reboots can
    do without: nobody restarts it where it does not reboot itself.
    """
    own = {host.name: settings_by_bmc(rendered[host.name]) for host in hosts}
    request = {name: {"settings": encoded(settings), "ours": {}} for name, settings in own.items()}
    setting = [host for host in hosts if own[host.name]]
    others = [host for host in hosts if host.bmc and host not in setting]
    asked = others if tuning.disruption == "reboot" else []
    # Whoever has no BMC to ask needs no CA file either.
    seen = context.bmcs.ask(setting, "plan", lambda host: request[host.name]) if setting else {}
    told = context.bmcs.ask(asked, "facts", lambda host: {}) if asked else {}
    silent = [_cannot_restart(a.host, str(a.error)) for a in told.values() if a.failed]
    _refuse({name: answer.error for name, answer in seen.items()})
    known = {n: answer.read(BmcFacts) for n, answer in told.items() if not answer.failed}
    return {**{n: answer.read(BiosPlan) for n, answer in seen.items()}, **known}, silent


def _cannot_restart(host: str, why: str) -> Finding:
    advice = f"mend hosts.{host}.bmc of the inventory, or the BMC"
    return Finding(f"its BMC cannot restart it: {why}", advice, host, refuses=False)


def _restart(host: Host, facts: HostFacts, told: BmcFacts, force: bool) -> Restart:
    """The machine of a BMC, and how it may restart it: only one that is the host's for sure."""
    ways = ladder(told.resets, force) if _is_own(host, facts, told) else []
    return Restart(told.system, told.serial, told.sku, ways)


def _is_own(host: Host, facts: HostFacts, told: BmcFacts) -> bool:
    vouched = host.bmc is not None and is_named(host.bmc.machine, vars(told))
    return vouched or matches(vars(facts.machine), vars(told))


def _as_approved(
    approved: Mapping[str, Restart],
    now: Mapping[str, Restart],
    bmcs: Mapping[str, BmcFacts],
) -> dict[str, Restart]:
    """A BMC that sets nothing and is away now, or was away then, is no reason against a plan."""
    there = {n: told for n, told in now.items() if n in approved or isinstance(bmcs[n], BiosPlan)}
    return {**approved, **there}


def _refuse_other_machines(
    context: Context,
    pop: Pop,
    tuning: Tuning,
    facts: Mapping[str, HostFacts],
    answers: Mapping[str, BmcFacts],
) -> None:
    """The address of another host's BMC would set, or even reset, a machine in service."""
    for_another = {
        name: f"pops.{pop.name}.hosts.{name}.bmc.address leads to another machine: {why}"
        for name, data in sorted(answers.items())
        for why in [
            _not_as_named(pop.host(name), data) or mismatch(vars(facts[name].machine), vars(data))
        ]
        if why
    }
    _refuse(for_another)
    for name, data in answers.items() if tuning.sets_bios else ():
        try:
            load_journal(context, pop.name, name).refuse_another(data.system)
        except RefusedError as error:
            raise RefusedError(f"{name}: {error}") from None


def _not_as_named(host: Host, system: BmcFacts) -> str | None:
    """Why it is not the machine that the inventory names."""
    named = host.bmc.machine if host.bmc else ""
    if not named or is_named(named, vars(system)):
        return None
    told = [*filter(None, (system.system, system.serial, system.sku))]
    return f"bmc.machine is {named}, and that BMC's machine {', '.join(told) or 'tells none'}"


def _refuse_without_bios(
    pop: Pop, tuning: Tuning, hosts: Sequence[Host], facts: Mapping[str, HostFacts]
) -> None:
    """A BIOS can only be set through a BMC, and only by a boot that runs it."""
    if not tuning.sets_bios:
        return
    for host in hosts:
        if host.bmc is None:
            field = f"pops.{pop.name}.hosts.{host.name}.bmc"
            raise InputError("inventory", field, f"is missing, and {tuning.name} sets the BIOS")
    skipping = sorted(name for name, known in facts.items() if known.kexec_loaded)
    _refuse(dict.fromkeys(skipping, "a kernel is loaded for kexec, so a reboot may skip the BIOS"))


def _refuse_other_version(
    context: Context, pop: Pop, tuning: Tuning, facts: Mapping[str, HostFacts]
) -> None:
    for name, known in facts.items():
        by_bmc = load_journal(context, pop.name, name) if tuning.sets_bios else None
        in_bios = by_bmc.standing(tuning.name) if by_bmc else None
        for where, stands in (("there", known.applied(tuning.name)), ("in its BIOS", in_bios)):
            if stands and stands.digest != tuning.digest:
                raise RefusedError(
                    f"{name}: another version of {tuning.name} stands {where}, of rollout "
                    f"{stands.rollout}; {command('roll_back_pop', rollout=stands.rollout)} first"
                )


def _refuse(problems: Mapping[str, str | None], what: str = "") -> None:
    """RefusedError where there is a problem with a host; ``what`` stands before them."""
    found = [f"{name}: {why}" for name, why in problems.items() if why]
    if found:
        raise RefusedError(f"{what}{few(found)} (exclude= leaves hosts out)")
