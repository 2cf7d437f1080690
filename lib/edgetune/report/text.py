# SPDX-License-Identifier: Apache-2.0
"""What people read in a terminal: plans, rollouts and verdicts as plain text."""

from __future__ import annotations

from collections.abc import Sequence

from edgetune.base.documents.batch import Wait
from edgetune.base.documents.diagnosis import findings_text
from edgetune.base.documents.head import Head, Quarantine
from edgetune.base.documents.look import Look, Spent
from edgetune.base.documents.options import Options
from edgetune.base.documents.plan import MOST_WAYS, Plan, ShownPlan
from edgetune.base.documents.sample import Drift
from edgetune.base.documents.settings import SettingRow, value_text
from edgetune.base.durations import duration, roughly, utc
from edgetune.base.names import listed
from edgetune.base.sanitize import one_line, shortened
from edgetune.intent.metrics.catalogue import metrics_of
from edgetune.judge.outliers import outlier_text
from edgetune.net.bmc.answers import FORCED, ON, SHUTDOWN, event_text, events_of
from edgetune.report.effects import effect_text, expected_text, level
from edgetune.report.findings import folded
from edgetune.report.headline import WAITING_FOR_A_PERSON, effect_of, next_steps
from edgetune.report.results import headroom_text
from edgetune.rollout.status.commands import releases, ways_out
from edgetune.rollout.status.present import spoken


def shown_plan_text(shown: ShownPlan) -> str:
    """A plan, and what its preflight found that does not refuse it."""
    told = plan_text(shown.plan, shown.inventory, shown.drain)
    notes = findings_text(shown.notes) or ["health, load balancer, stores and clocks are well"]
    return "\n".join([told, "  preflight", *(f"    {line}" for line in notes)])


def plan_text(plan: Plan, inventory: str = "", drain: str = "") -> str:
    """A plan, as it is shown before anything is touched (see ``ShownPlan``)."""
    tuning, options = plan.tuning, plan.options
    ways = str(plan.assignments) if plan.assignments < MOST_WAYS else "10^18 or more"
    intent = f"improve {plan.intent.metric}"
    if plan.intent.goal != "improve":
        intent = f"no harm to {plan.intent.metric} beyond {plan.intent.margin:.0%}"
    kept_to = _row("only", kept_to_text(plan)) if options.only else []
    lines = [
        f"Plan {plan.digest}: {tuning.name} {tuning.version} on {plan.pop}",
        f"  intent      {intent}",
        f"  disruption  {plan.disruption}; at least {plan.must_serve} of "
        f"{plan.hosts_in_pop} hosts stay in service",
        *_guards(plan),
        f"  duration    about {roughly(plan.seconds)} "
        f"({duration(options.baseline)} baseline, {duration(options.soak)} soak)",
        f"  looks       {_looks(options)}",
        f"  groups      drawn with seed {options.seed}; {ways} ways, "
        f"smallest possible p = {1 / plan.assignments:.4f}",
    ]
    lines[3:3] = [*kept_to, *_restarts(plan), *_falls_back(plan)]
    lines[2:2] = _row("expected", expected_text(plan.expected)) if plan.expected else []
    lines[1:1] = _row("inventory", inventory) if inventory else []
    lines += _row("drain", drain) if drain and plan.disruption != "live" else []
    lines += [f"  identity    {line}" for line in _machines(plan)]
    if options.without_packets:
        lines.append(
            "  packets     need not be counted: traffic may move between the groups unseen"
        )
    for name, stratum in plan.strata.items():
        lines.append(f"    {name}: test {listed(stratum.test)}; control {listed(stratum.control)}")
    lines.append("  changes")
    for profile in plan.profiles:
        lines.append(f"    on {listed(profile.hosts)}")
        lines += [f"      {_change(row)}" for row in profile.before]
        left_out = profile.left_out.items()
        lines += [f"      {id} is left out: {why}" for id, why in left_out]
    if plan.unchanged:
        lines.append(f"    as wanted already: {listed(plan.unchanged)}")
    lines.append("  batches")
    for index, batch in enumerate(plan.every_batch):
        if options.pause_after and index == options.pause_after:
            lines.append("    --  waits here until a person resumes the PoP (pause_after)")
        changes = len(plan.batches)
        promoted = " (if promoted)" if index >= changes else ""
        number = index + 1 if index < changes else index - changes + 1
        what = {"change": "change", "sham": "reboot only"}[batch.batch_type]
        lines.append(f"    {number}  {what:<11} {batch.group:<8}{listed(batch.hosts)}{promoted}")
    return _page(lines)


def _falls_back(plan: Plan) -> list[str]:
    """What becomes of a host whose new kernel, or command line, is no good."""
    if not plan.tries_boots:
        return []
    return _row(
        "falls back",
        "the next boot tries it once; it becomes the default when its host is confirmed. A host "
        "on which it panics, hangs, has no network or is not as wanted boots the old one by "
        "itself: it boots twice, and is out of service for as long",
    ) + _row("early hang", _early_hang(plan))


def _early_hang(plan: Plan) -> str:
    """Who ends a hang that comes before there is a watchdog."""
    tried = sorted(filter(plan.tries_a_boot, plan.groups.hosts))
    forced = {name for name, shown in plan.restarts.items() if FORCED in shown.resets}
    by_bmc = [name for name in tried if name in forced]
    by_person = [name for name in tried if name not in forced]
    told = ["no watchdog ends a hang before systemd has opened it"]
    if by_bmc:
        told.append(f"BMCs reset {listed(by_bmc)}")
    if by_person:
        told.append(f"a person has to reset {listed(by_person)}")
    if not plan.options.force_restart and any(name in plan.restarts for name in tried):
        told.append("force_restart=true has BMCs do it")
    return "; ".join(told)


def _row(name: str, text: str) -> list[str]:
    """A row of the plan, as many lines as it needs."""
    return folded(text, 78, f"  {name:<12}", 14 * " ")


def kept_to_text(plan: Plan) -> str:
    """Which part of its PoP a rollout keeps to, and what becomes of the rest; empty if all."""
    if not plan.options.only:
        return ""
    hosts = len(plan.groups.hosts) + len(plan.unchanged)
    return (
        f"{hosts} of {plan.hosts_in_pop} hosts of {plan.pop} (only={','.join(plan.options.only)}); "
        "no other host is compared or changed, not even by a promotion"
    )


def _guards(plan: Plan) -> list[str]:
    """What may not get worse, by how much it may."""
    metrics = metrics_of(plan)
    told = [
        f"{name} {metrics[name].sign_of_worse}{guard.margin:.0%}{' (optional)' * guard.optional}"
        for guard in plan.guards
        for name in [guard.metric]
    ]
    text = f"harm beyond {', '.join(told)}" if told else "none"
    return _row("guards", text)


def _restarts(plan: Plan) -> list[str]:
    """How BMCs restart hosts that do not reboot themselves, the hosts of each way together."""
    by_way: dict[str, list[str]] = {}
    for host, shown in plan.restarts.items():
        by_way.setdefault(", then ".join(map(_way, shown.resets)), []).append(host)
    if not by_way:
        return []
    told = "by the hosts themselves; one that goes on answering by its BMC:"
    ways = [f"{way or 'in no way'}: {listed(hosts)}" for way, hosts in by_way.items()]
    return [f"  reboot      {told}", *(f"              {way}" for way in ways)]


def _way(reset: str) -> str:
    return f"{SHUTDOWN} (and {ON})" if reset == SHUTDOWN else reset


def _machines(plan: Plan) -> list[str]:
    """What proves that inventory, load balancer and SSH mean one machine."""
    proofs = plan.machines.items()
    vouched = [
        f"{name} ({each.address or 'no address told'})"
        for name, each in proofs
        if each.proven_by == "inventory"
    ]
    seen, own = (sum(e.proven_by == by for _, e in proofs) for by in ("interface", "host"))
    told = {
        f"{seen} hosts have the address that the load balancer sends requests to": seen,
        f"the inventory alone vouches for {listed(vouched)}": vouched,
        f"{own} hosts are drained over the SSH by which they are changed": own,
    }
    return [line for line, hosts in told.items() if hosts]


def _page(lines: Sequence[str]) -> str:
    return "\n".join(map(one_line, lines))


def verdict_text(look: Look, plan: Plan) -> str:
    """A verdict with its numbers, and with what it is of (see ``kept_to_text``)."""
    metrics, kept_to = metrics_of(plan), kept_to_text(plan)
    lines = [f"{look.verdict}: {look.reason} -> {look.decision}"]
    lines += [f"  {_spent(name, test)}" for name, test in look.tests.items()]
    for row in look.metrics:
        metric = metrics[row.metric]
        role = f" ({row.role})" if row.role in ("part", "beside") else ""
        name = f"{row.metric}{role}".ljust(14)
        shown = [level(own, metric, row.exposure) for own in row.levels]
        proofs = ""
        if row.known_ratio is not None:
            proofs = f", p {row.p_better:.3f} better, {row.p_worse:.3f} worse"
        lines.append(
            f"  {name} test {shown[0]} -> {shown[1]}, control {shown[2]} -> {shown[3]} "
            f"{metric.unit_of(row.exposure).text}; {effect_text(row)}{proofs}"
        )
    lines += [capacity_line(headroom_text(own, metrics[own.metric])) for own in look.headroom]
    lines += [f"  far from its group: {outlier_text(odd)}" for odd in look.outliers]
    lines += [
        f"  {own.metric:<14} not watched, as it is optional, on {listed(own.hosts)}"
        for own in look.unwatched
    ]
    lines += [f"  kept to {kept_to}"] if kept_to else []
    return _page(lines)


def capacity_line(told: str) -> str:
    """What is known of the load that hosts carry, as a line of a verdict."""
    return one_line(f"  capacity       {told}")


def wait_text(wait: Wait | None) -> str:
    """What a batch waits for, in one line; empty if it waits for nothing."""
    if wait is None:
        return ""
    until = f"; until {wait.until}" if wait.until else ""
    return one_line(f"waits since {utc(wait.since)}: {wait.why}{until}")


def rollout_text(head: Head, wait: str = "") -> str:
    """A rollout, what it waits for (see ``wait_text``), and what happened to it so far."""
    lines = [
        f"{head.id}  {head.tuning} on {head.pop}: {head.state}",
        f"  plan {head.plan}, epoch {head.epoch}, by {head.by or 'unknown'}"
        + (f", tells {head.channel.partition('|')[0]}" if head.channel else ""),
    ]
    lines += [f"  {wait}"] if wait else []
    for entry in head.history:
        lines.append(f"  {utc(entry.at)}  {entry.state:<12} {entry.told}")
    if head.state == "soaking" and head.verdict:
        lines.append(f"  {head.verdict.verdict.value} so far: {head.verdict.reason}")
    effect = effect_of(head)
    lines += [f"  effect: {effect}"] if effect else []
    for step in next_steps(head) if head.state in WAITING_FOR_A_PERSON else ():
        lines += [f"  {step.text}", *([f"    {step.command}"] if step.command else [])]
    for host, why in head.quarantined.items():
        lines += [f"  quarantined: {host}: {why.reason}", f"    {_evidence(why)}"]
        lines.append(f"    {service_text(why)}")
        lines += [f"    {event_text(event)}" for event in events_of(why.bmc)]
        lines += [f"    {when}: {way}" for when, way in releases(head, host).items()]
    return _page(lines)


def left_text(head: Head, out: Sequence[str] | None) -> str:
    """A rollout without an owner: the hosts that are ``out`` of service by its record (None: it
    cannot be read), and the commands that get out. Made for a terminal of 80 columns."""
    known = "not known, its record cannot be read" if out is None else listed(out)
    lines = [
        f"WITHOUT AN OWNER: {head.id}",
        f"  {head.tuning} on {head.pop}: {spoken(head.state)}",
        *folded(f"out of service by its record: {known}", 79, "  ", "    "),
    ]
    return _page([*lines, *(f"  {what + ':':<11} {way}" for what, way in ways_out(head).items())])


def drift_text(row: Drift) -> str:
    """A setting that is not as a standing tuning left it, in one line."""
    now = f"now {value_text(row.runtime)}, after a boot {value_text(row.persistent)}"
    wants = f"wants {value_text(row.wanted)}"
    return shortened(f"{row.tuning}: {row.id}: {wants}; {now}: {row.reason}")


def _evidence(why: Quarantine) -> str:
    facts = [f"since {utc(why.since)}"] if why.since else ["since an earlier version"]
    if why.step is not None:
        facts.append(f"at the step {why.step} (batch={why.batch})")
    if why.boot_id:
        facts.append(f"last seen in boot {why.boot_id}")
    if why.load_balancer:
        facts.append(f"{why.load_balancer} in the load balancer before")
    return ", ".join(facts)


def service_text(why: Quarantine) -> str:
    """Whether a quarantined host was seen out of service; records of version 0.6 do not say."""
    if why.out_of_service is None:
        return "NOT known to be out of service: no look at the load balancer was written down"
    told = "out of service" if why.out_of_service else "NOT seen out of service"
    return f"{told}: {'; '.join(filter(None, (why.seen, why.noted)))}"


def _looks(options: Options) -> str:
    looks = options.planned_looks
    each = roughly(round((options.soak - options.warmup) / looks))
    alpha = f"alpha {options.alpha_harm:g}"
    if looks == 1:
        return f"one, at the end of the soak, at {alpha}"
    return f"{looks}, every {each}; harm is taken back at the first that proves it, {alpha} in all"


def _change(row: SettingRow) -> str:
    if row.status == "noop":
        return f"{row.id} is {value_text(row.wanted)} already"
    now = f"{row.id}: {value_text(row.runtime)} -> {value_text(row.wanted)}"
    if row.attributes:
        named = row.attributes.items()
        sets = ", ".join(f"{name}={value_text(values.wanted)}" for name, values in named)
        return now + f" (BIOS: {sets})"
    return now + f" (stored: {value_text(row.persistent)})"


_TESTS = {"harm": "anything worse", "help": "the intent"}


def _spent(name: str, test: Spent) -> str:
    said = "proven" if test.out else "not proven"
    spent = f"alpha {test.spent:.2g} of {test.alpha:g} spent so far"
    p = "" if test.p is None else f", p {test.p:.3g}"
    return f"{_TESTS[name]:<14} {said}{p}; {spent}"
