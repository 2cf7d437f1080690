# SPDX-License-Identifier: Apache-2.0
"""All checks of a preflight on one PoP, to the end, whatever the first ones find."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Callable, NamedTuple, TypedDict

from edgetune.base.documents.diagnosis import Checked, Checkup, Finding, grouped
from edgetune.base.documents.host import SeenSettings
from edgetune.base.documents.reading import encoded
from edgetune.base.durations import duration
from edgetune.base.errors import EdgetuneError
from edgetune.base.sanitize import command
from edgetune.intent.rendering import misfits, render
from edgetune.intent.tuning import Tuning
from edgetune.net.result import HostResult
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.sampling import megabytes, memory_text, most_bytes
from edgetune.rollout.ownership.automation import ALWAYS, SOAKING, find_off, needed_rules
from edgetune.rollout.planning import preflight, site_checks
from edgetune.rollout.planning.make_plan import ask_agents
from edgetune.rollout.record.heads import living_heads, unreadable_rollouts
from edgetune.rollout.record.kept_inventory import compared
from edgetune.rollout.status.congestion import RULES, seen_rounds, what_is_wrong
from edgetune.rollout.store.inventory import kept_inventory
from edgetune.rollout.store.nodes import differences, this_node


class _Named(NamedTuple):
    name: str
    means: str
    check: Callable[[Any], Iterable[Finding]]


_SITE = (
    _Named(
        "configuration",
        "its options are right, and files that it names",
        site_checks.check_configuration,
    ),
    _Named("source", "the inventory can be read, and every PoP in it", site_checks.check_source),
    _Named(
        "catalogue", "your tunings, metrics and campaigns can be read", site_checks.check_catalogue
    ),
)
"""Checks of what a site wrote down, which are given the context."""


class DoctorResult(TypedDict):
    """``checks`` are rows as ``diagnosis.Checked``; those that ``failed`` have findings, and not
    notes alone."""

    pop: str
    checks: list[dict[str, object]]
    failed: list[str]
    message: str
    text: Checkup


def doctor_pop(context: Context, pop: str, tuning: str = "") -> DoctorResult:
    """What speaks against a rollout on a PoP now; no machine and no record is changed.

    With ``tuning`` every host is asked whether it takes its settings, too. ``checks`` has for
    each one what it ``means`` and its ``findings``, ``failed`` the names of those with any. What
    the site wrote down comes first; where that permits no more, nothing else is asked.
    """
    checks = [_looked(named, context) for named in _SITE]
    message = "the other checks wait for that"
    if not checks[0].findings:
        try:
            known, wanted = context.inventory.pop(pop), context.tuning(tuning) if tuning else None
        except EdgetuneError:
            if not _failed(checks):
                raise
        else:
            subject = preflight.Subject(context, known, known.hosts)
            checks += [_looked(named, subject) for named in _checks(subject, wanted)]
            message = ""
    message = _message(pop, checks, message)
    return {
        "pop": pop,
        "checks": encoded(checks),
        "failed": _failed(checks),
        "message": message,
        "text": Checkup(message, checks),
    }


def _checks(subject: preflight.Subject, tuning: Tuning | None) -> Iterable[_Named]:
    count = len(subject.hosts)
    yield _Named("claim", "the PoP is free, and could be claimed", preflight.check_claim)
    yield _Named("records", "rollouts can be read, and written where that shows", check_records)
    yield _Named("automation", "rules and sensor are on, as rollouts need them", check_automation)
    alike = "hold the same keys, inventory, tunings and pack"
    yield _Named("nodes", f"those that ran actions in the last hour {alike}", check_nodes)
    if subject.context.config.records == "st2":
        stays = "nothing of yours lies there, where an upgrade would remove it"
        yield _Named("pack folder", stays, check_pack_folder)
    yield _Named(
        "inventory", "its source tells the PoP as it was for the last plan", check_inventory
    )
    yield _Named("samples", memory_text(subject.context, subject.pop), check_samples)
    yield _Named("permission", "nothing is stopped, paused or frozen", preflight.check_permission)
    if subject.pop.congestion is not None:
        yield _Named("congestion", "rounds go on, and hosts have what they chose", check_congestion)
    in_service = f"obeys, and has all {count} hosts in service"
    yield _Named("load balancer", in_service, preflight.check_load_balancer)
    yield _Named(
        "machines", "inventory, load balancer and SSH mean the same", preflight.check_machines
    )
    answering = f"all {count} answer over SSH, none is held by a rollout"
    yield _Named("hosts", answering, preflight.check_hosts)
    yield _Named("disks", "/etc and /var/lib can be written", preflight.check_disks)
    yield _Named("health", f"{subject.pop.health} is answered well", preflight.check_health)
    if any(view.metrics.fields.get("access_log") for view in subject.pop.views):
        yield _Named("access logs", "all hosts read theirs", preflight.check_access_logs)
    yield _Named(
        "clocks", f"within {duration(preflight.CLOCKS_APART)} of ours", preflight.check_clocks
    )
    if subject.context.config.alertmanager.url:
        yield _Named(
            "alerts", "Alertmanager answers, and matchers tell hosts apart", preflight.check_alerts
        )
    if any(host.bmc for host in subject.hosts):
        there = "certificates and logins for them are there"
        yield _Named("BMCs", there, partial(_check_bmcs, tuning))
    expiring = site_checks.certificates(subject.context, subject.pop)
    if expiring:
        within = subject.context.config.certificate_warning
        lasting = f"none of {len(expiring)} expires within {duration(within)}"
        check = site_checks.check_certificates
        yield _Named("certificates", lasting, lambda _: check(expiring, within))
    if _has_experimental(subject):
        yield _Named("systems", "all are tried", preflight.check_systems)
    if tuning:
        takes = f"every host takes those of {tuning.name}"
        yield _Named("settings", takes, partial(check_settings, tuning))


def _has_experimental(subject: preflight.Subject) -> bool:
    # What keeps hosts from being asked is told by their own check.
    with suppress(EdgetuneError):
        return any(preflight.check_systems(subject))
    return False


def _looked(named: _Named, asked: Any) -> Checked:
    try:
        is_of_hosts = isinstance(asked, preflight.Subject)
        found = list(asked.found(named.check) if is_of_hosts else named.check(asked))
    except EdgetuneError as error:
        found = [Finding(str(error), f"mend that; {named.name} could not be looked at")]
    notes = [own for own in found if isinstance(own, site_checks.Note)]
    failed = [own for own in found if not isinstance(own, site_checks.Note)]
    return Checked(named.name, named.means, grouped(failed), grouped(notes))


def _failed(checks: Iterable[Checked]) -> list[str]:
    return [own.check for own in checks if own.findings]


def _message(pop: str, checks: Sequence[Checked], further: str) -> str:
    failed = _failed(checks)
    if not failed:
        return f"{pop}: all {len(checks)} checks are well"
    told = f"{pop}: {len(failed)} of {len(checks)} checks failed: {', '.join(failed)}"
    return "; ".join(filter(None, [told, further]))


def _check_bmcs(tuning: Tuning | None, subject: preflight.Subject) -> Iterable[Finding]:
    kind = Finding if tuning and tuning.sets_bios else site_checks.Note
    for text in site_checks.check_bmcs(subject.context, subject.hosts):
        yield kind(text, "mend it before a tuning of the BIOS, or one that reboots")


def check_records(subject: preflight.Subject) -> Iterable[Finding]:
    """Rollouts can be read, and nothing shows that their records could not be written."""
    refusal = subject.context.store.refuses_changes()
    if refusal:
        yield Finding(refusal, "mend the record store, or who asks it")
    for each in unreadable_rollouts(subject.context, subject.pop.name):
        gives_up = command("release_record", rollout=each.id)
        yield Finding(each.why, f"put it back, or give it up: {gives_up}")


def check_automation(subject: preflight.Subject) -> Iterable[Finding]:
    """StackStorm's rules and the sensor do what a rollout without ``wait`` needs; as long as none
    is under way, what is off is a note."""
    kind: type[Finding] = Finding
    with suppress(EdgetuneError):  # the check of the records tells
        kind = Finding if needed_rules(living_heads(subject.context)) else site_checks.Note
    yield from _off(subject.context, {**ALWAYS, **SOAKING}, kind)


def _off(
    context: Context, needed: Mapping[str, str], kind: type[Finding] = Finding
) -> Iterable[Finding]:
    for own in find_off(context, needed):
        yield kind(own.what, own.advice or "mend that", refuses=False)


def check_nodes(subject: preflight.Subject) -> Iterable[Finding]:
    """Every node of StackStorm holds what actions need, and the same."""
    context = subject.context
    this = this_node(context.config)
    others = [node for node in context.nodes.all() if node.name != this.name]
    for text in differences([this, *others]):
        yield Finding(text, "make the nodes alike", refuses=False)


def check_pack_folder(subject: preflight.Subject) -> Iterable[Finding]:
    """No file of the site lies where StackStorm removes it when the pack is installed anew."""
    for field, path in site_checks.site_files(subject.context.config):
        what = f"{field}: {path} lies in the folder of the pack, which an upgrade removes"
        yield Finding(what, "move it, such as to /opt/stackstorm/edgetune", refuses=False)


def check_inventory(subject: preflight.Subject) -> Iterable[Finding]:
    """The source of the inventory answers, and tells what it told for the last plan."""
    context, name = subject.context, subject.pop.name
    if kept_inventory(context.store) is None:
        return
    for change in compared(context, name)[1]:
        for host in change.removed:
            advice = f"see {command('diff_inventory', pop=name)}"
            yield Finding("it is gone from the inventory since the last plan", advice, host, False)


def check_congestion(subject: preflight.Subject) -> Iterable[Finding]:
    """Rounds of congestion control go on here, or a person took them back."""
    context, pop = subject.context, subject.pop.name
    yield from _off(context, RULES)
    found = seen_rounds(context, pop)
    if not found:
        begins = command("tune_congestion", pop=pop)
        yield Finding("no round was ever taken", f"begin: {begins}", refuses=False)
    shows = command("congestion_report", pop=pop)
    for own in found:
        for text in what_is_wrong(own):
            yield Finding(text, f"see {shows}", refuses=False)
        if own.taken_back:
            goes_on = command("resume_congestion", pop=pop)
            yield Finding(f"taken back: {own.taken_back}", f"see {shows}; {goes_on}", refuses=False)
        for host in own.missing:
            text = "does not have the configuration that the others have"
            yield Finding(text, f"see {shows}", host, refuses=False)


def check_samples(subject: preflight.Subject) -> Iterable[Finding]:
    """The source that remembers samples answers. Redis has room for the samples of all PoPs, and
    drops nothing of ours when it is full."""
    context, limit = subject.context, subject.context.samples.limit()
    _, lost = context.samples.newest_known([subject.pop.name])
    for error in lost.values():
        yield Finding(error, "mend that: nothing is promoted without samples", refuses=False)
    if limit is None:
        return
    most = most_bytes(
        context, [context.inventory.pop(name) for name in context.inventory.pop_names()]
    )
    if most > limit.most:
        kept = duration(context.config.sample_retention)
        what = f"Redis holds {megabytes(limit.most)} (maxmemory); {kept} of samples of all PoPs"
        what = f"{what} may take {megabytes(most)}"
        yield Finding(what, "raise maxmemory, or shorten sample_retention", refuses=False)
    if limit.policy != "noeviction":
        what = f"Redis drops keys when it is full ({limit.policy}), and with them claims of PoPs"
        yield Finding(what, "set maxmemory-policy noeviction", refuses=False)


def check_settings(tuning: Tuning, subject: preflight.Subject) -> Iterable[Finding]:
    """Every host takes every setting of a tuning that is not optional; nothing is written."""
    told = {n: answer for n, answer in subject.facts.items() if not answer.failed}
    reasons = {name: misfits(tuning, answer.data) for name, answer in told.items()}
    for name, whys in reasons.items():
        for why in whys:
            yield Finding(f"{tuning.name} is not for it: {why}", "leave it out: exclude=", name)
    fit = {name: render(tuning, told[name].data) for name in told if not reasons[name]}
    for answer in ask_agents(subject.context, tuning, subject.hosts, fit).values():
        yield from _refused_settings(tuning, answer)


def _refused_settings(tuning: Tuning, answer: HostResult) -> Iterable[Finding]:
    if answer.failed:
        yield Finding(f"cannot be asked: {answer.error}", "mend it, or exclude=", answer.host)
        return
    for row in answer.read(SeenSettings).settings:
        if row.status == "unsupported" and not tuning.setting_of(row.id).optional:
            yield Finding(f"{row.id}: {row.why}", "mend that, or exclude=", answer.host)
