# SPDX-License-Identifier: Apache-2.0
"""What has to be well before a rollout begins: checks that ask everybody and change nothing.

A dry run refuses for what they find, ``doctor`` lists it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Callable

from edgetune.agent.vocabulary import SYSTEMS
from edgetune.agent.vocabulary.kind import EXPERIMENTAL
from edgetune.agent.vocabulary.places import NOT_READY
from edgetune.base import clock
from edgetune.base.documents.diagnosis import Finding, findings_text
from edgetune.base.documents.plan import Proof
from edgetune.base.durations import duration
from edgetune.base.errors import RefusedError
from edgetune.base.names import listed
from edgetune.base.sanitize import command, one_line
from edgetune.net.result import HostResult
from edgetune.net.traffic import Server
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.access_log import LogProblem, log_problems
from edgetune.rollout.gates.freeze import frozen_text
from edgetune.rollout.gates.pause import pause_text, pauses_of, standing_pauses, ways_on
from edgetune.rollout.hosts.health import sick_services
from edgetune.rollout.hosts.identity import prove_machines
from edgetune.rollout.hosts.in_service import shown, why_out
from edgetune.rollout.hosts.silencing import shared_matchers
from edgetune.rollout.ownership.kill_switch import stopped_by
from edgetune.rollout.record.heads import living_heads
from edgetune.rollout.status.claimed import holders, kept_hosts
from edgetune.site.inventory import HEALTH_TLS, Host, Pop

CLOCKS_APART = 10.0
"""Seconds beyond the round trip by which a clock may differ."""

_AGAIN = 1.0
_LONGEST = 100


class Subject:
    """The hosts that are looked at, with what they and their load balancer say; asked once."""

    def __init__(self, context: Context, pop: Pop, hosts: Sequence[Host]) -> None:
        self.context, self.pop, self.hosts = context, pop, hosts
        self._asked = (0.0, 0.0)

    @cached_property
    def facts(self) -> Mapping[str, HostResult]:
        """What every host answers to ``facts``."""
        started = clock.wall()
        answers = self.context.fleet.ask(self.hosts, "facts", lambda host: {})
        self._asked = (started, clock.wall())
        return answers

    @property
    def asked(self) -> tuple[float, float]:
        """When the first was asked for facts and the last had answered, by our clock."""
        return self._asked if self.facts else (0.0, 0.0)

    @cached_property
    def servers(self) -> Mapping[str, Server]:
        """What the load balancer says; DrainError if it does not."""
        return self.context.load_balancer(self.pop).servers()

    @cached_property
    def proven(self) -> tuple[dict[str, Proof], dict[str, str]]:
        """``identity.prove_machines`` of all that answer and have a server."""
        known = {n: answer.facts for n, answer in self.facts.items() if not answer.failed}
        hosts = [h for h in self.hosts if h.name in known and h.server in self.servers]
        return prove_machines(self.pop, hosts, self.servers, known)

    @cached_property
    def log_problems(self) -> Mapping[str, LogProblem]:
        """``access_log.log_problems`` of all that answer."""
        answering = [host for host in self.hosts if not self.facts[host.name].failed]
        return log_problems(self.context, self.pop, answering)

    @cached_property
    def kept(self) -> Mapping[str, str]:
        """``claimed.kept_hosts`` of the PoP."""
        return kept_hosts(self.context, self.pop)

    def found(self, check: Check) -> Iterator[Finding]:
        """What a check finds. Of a host that a rollout keeps no other advice is given."""
        for own in check(self):
            yield replace(own, advice=self.kept.get(own.host, own.advice)) if own.host else own


Check = Callable[[Subject], Iterable[Finding]]


def check_claim(subject: Subject) -> Iterable[Finding]:
    """The PoP is nobody else's, and the claims store would take a claim."""
    yield from holders(subject.context, subject.pop.name)
    refusal = subject.context.claims.refuses_changes()
    if refusal:
        yield Finding(f"claims cannot be written: {refusal}", "mend the claims store")


def check_permission(subject: Subject) -> Iterable[Finding]:
    """Nobody has stopped everything, or paused the PoP, and no freeze is in force."""
    context, pop = subject.context, subject.pop.name
    stopped = stopped_by(context)
    if stopped:
        yield Finding(f"everything is stopped: {stopped}", command("resume_all"), refuses=False)
    pauses = standing_pauses(pauses_of(context, pop))
    goes_on, frozen = " and ".join(ways_on(pop, pauses)), frozen_text(pop, context.config.closed)
    for what, advice in ((pause_text(pop, pauses), goes_on), (frozen, "wait for its end")):
        if what:
            yield Finding(what, advice, refuses=False)


def check_load_balancer(subject: Subject) -> Iterable[Finding]:
    """The load balancer obeys, and sends requests to every host."""
    driver = subject.context.load_balancer(subject.pop)
    # One that is left out may refuse: nothing is asked of it.
    refusal = driver.refuses_changes_of([host.server for host in subject.hosts])
    if refusal:
        yield Finding(refusal, driver.advice)
    uncounted = [name for name, server in subject.servers.items() if server.sessions is None]
    if uncounted and not subject.pop.ports:
        what = "the load balancer tells no sessions, and hosts know no port to count them on"
        yield Finding(what, "give the PoP a health: or ports: in the inventory")
    yield from check_overrides(subject)
    yield from out_of_service(subject)


def check_overrides(subject: Subject) -> Iterable[Finding]:
    """Nothing lets hosts in again while they are drained."""
    driver = subject.context.load_balancer(subject.pop)
    for host in subject.hosts:
        server = subject.servers.get(host.server)
        if server and server.overridden_by:
            what = f"may be let in again while it is drained, by {server.overridden_by}"
            yield Finding(what, driver.override_advice, host.name)


def out_of_service(subject: Subject) -> Iterable[Finding]:
    """Hosts that take no requests now."""
    advice = "bring it back into service, or leave it out: exclude="
    for host in subject.hosts:
        server = subject.servers.get(host.server)
        if server is None:
            what = f"the load balancer has no server {host.server!r}"
            yield Finding(what, "correct its server: in the inventory", host.name)
        elif server.lacking:
            what = f"{server.lacking} has no server {host.server!r}"
            yield Finding(what, "add it there, or correct its server: in the inventory", host.name)
        elif server.unknown:
            yield Finding(shown(server), advice, host.name)
        elif not server.is_serving:
            yield Finding(f"the load balancer has it {why_out(server)}", advice, host.name)


def check_hosts(subject: Subject) -> Iterable[Finding]:
    """Every host answers over SSH, and none is held by a rollout."""
    for head in living_heads(subject.context, subject.pop.name):
        for host in subject.hosts:
            if host.name in head.quarantined:
                what = f"is quarantined by rollout {head.id}"
                yield Finding(what, subject.kept[host.name], host.name)
    for name, answer in subject.facts.items():
        if answer.failed:
            advice = "mend it, or leave it out: exclude="
            yield Finding(f"cannot be asked: {answer.error}", advice, name)
        elif not answer.facts.agent_state.ready:
            what = "is not ready: a rollout drained it and has not verified it"
            advice = f"no rollout keeps it; {NOT_READY} there names that one: see the runbook"
            yield Finding(what, advice, name)


def check_machines(subject: Subject) -> Iterable[Finding]:
    """Each host that answers is the machine to which the load balancer sends its requests."""
    for name, why in subject.proven[1].items():
        yield Finding(why, "correct address:, server: or server_address: in the inventory", name)


def check_disks(subject: Subject) -> Iterable[Finding]:
    """Every host could keep a setting and its journal; the kernel is asked, nothing is written."""
    for name, answer in subject.facts.items():
        told = [] if answer.failed else answer.facts.unwritable
        if told:
            what = f"{one_line(listed(told))[:_LONGEST]} cannot be written: read-only, or not there"
            yield Finding(what, "mend its disk, or leave it out: exclude=", name)


def check_health(subject: Subject) -> Iterable[Finding]:
    """The service of every host answers its health check well."""
    pop = subject.pop
    if not pop.health:
        advice = "give the PoP a health: in the inventory"
        yield Finding("has no health check: a sick host would pass", advice, refuses=False)
    if pop.health_tls != HEALTH_TLS[0]:
        what = f"the certificate of {pop.health} is not verified (health_tls: insecure)"
        yield Finding(what, "give health_name:, and take health_tls: away", refuses=False)
    for name, seen in sick_twice(subject).items():
        yield Finding(seen, "mend the service, or health: in the inventory", name)


def check_access_logs(subject: Subject) -> Iterable[Finding]:
    """Every host reads the access log of its service, where the inventory names one."""
    for name, own in subject.log_problems.items():
        advice = "mend that, or access_log: and log_format: in the inventory"
        yield Finding(f"its access log: {own.why}", advice, name, refuses=False)


def sick_twice(subject: Subject) -> Mapping[str, str]:
    """Hosts whose health check failed, and failed again a moment later; with what was seen."""
    answering = [h for h in subject.hosts if not subject.facts[h.name].failed]
    sick = sick_services(subject.context, subject.pop, answering)
    if not sick:
        return {}
    clock.sleep(_AGAIN)
    again = [host for host in answering if host.name in sick]
    return sick_services(subject.context, subject.pop, again)


def check_clocks(subject: Subject) -> Iterable[Finding]:
    """Clocks of the hosts show a time between the question and the answer.

    Samples are stamped by the clock of whoever samples, which the judge relies on. A host's own
    clock stands in no comparison, but in its logs and in what it thinks of certificates.
    """
    known = {name: answer.facts for name, answer in subject.facts.items() if not answer.failed}
    times = {name: _moment(facts.time) for name, facts in known.items()}
    told = {name: time for name, time in times.items() if time is not None}
    for name in times.keys() - told.keys():
        yield Finding("does not tell its time", "look at its clock", name, refuses=False)
    apart = {name: _apart(value, *subject.asked) for name, value in told.items()}
    wrong = {name: seconds for name, seconds in apart.items() if seconds}
    if wrong and 2 * len(wrong) > len(told) > 1:
        middle = sorted(wrong.values())[len(wrong) // 2]
        what = f"{len(wrong)} of {len(told)} hosts have another time; ours is {_skew(-middle)}"
        yield Finding(what, "mend the clock of this action runner")
        return
    for name, seconds in wrong.items():
        what = f"its clock is {_skew(seconds)}"
        yield Finding(what, "mend its clock", name, refuses=False)


def check_alerts(subject: Subject) -> Iterable[Finding]:
    """Alertmanager answers, if there is one, and a silence of one host silences no other."""
    settings = subject.context.config.alertmanager
    if not settings.url:
        return
    from edgetune.net.silences import keep_silences

    problem = shared_matchers(subject.context, subject.pop, subject.hosts)
    problem = problem or keep_silences(settings, "none", [])
    if problem:
        what = f"alerts of drained hosts would not be silenced: {problem}"
        yield Finding(what, "mend that, or alertmanager: in the configuration", refuses=False)


def _apart(told: float, started: float, ended: float) -> float:
    """By how many seconds a clock is surely ahead (behind: negative); 0 if it need not be."""
    ahead, behind = told - ended, started - told
    if ahead > CLOCKS_APART:
        return ahead
    return -behind if behind > CLOCKS_APART else 0.0


def _moment(told: object) -> float | None:
    """Epoch seconds, if that is what a host told."""
    if isinstance(told, bool) or not isinstance(told, (int, float)) or not 0 < told < 1e11:
        return None
    return told


def _skew(seconds: float) -> str:
    return f"{duration(round(abs(seconds)))} {'ahead' if seconds > 0 else 'behind'}"


def check_systems(subject: Subject) -> Iterable[Finding]:
    """Whether hosts have an operating system on which nobody has tried this yet."""
    for name, answer in subject.facts.items():
        if not answer.failed and answer.facts.system in EXPERIMENTAL:
            what = f"{SYSTEMS[answer.facts.system]} is experimental: no real host ran this yet"
            yield Finding(what, "try it in a PoP that may fail", name, refuses=False)


PLAN_CHECKS: Sequence[Check] = (
    # First, as a plan shows few of many findings.
    check_claim,
    check_systems,
    check_permission,
    check_hosts,
    check_machines,
    check_load_balancer,
    check_disks,
    check_health,
    check_access_logs,
    check_clocks,
    check_alerts,
)


BASELINE_CHECKS: Sequence[Check] = (check_hosts, check_overrides, out_of_service, check_health)


def unfit_hosts(subject: Subject) -> list[Finding]:
    """Hosts that do not serve well before anything is done to them."""
    found = [finding for check in BASELINE_CHECKS for finding in subject.found(check)]
    return [finding for finding in found if finding.refuses]


def refuse_unfit(subject: Subject) -> list[Finding]:
    """Look at all that a rollout needs; RefusedError names what speaks against one.

    Findings that only a person can weigh come back. Of each host the first finding is told: a
    host in quarantine is out of service, too.
    """
    found = [finding for check in PLAN_CHECKS for finding in subject.found(check)]
    refusing = [finding for finding in found if finding.refuses]
    if refusing:
        seen = {f.host: f for f in reversed(refusing) if f.host}
        refusing = [f for f in refusing if not f.host or seen[f.host] is f]
        told = "; ".join(findings_text(refusing, advised=True))
        shows = command("doctor_pop", pop=subject.pop.name)
        raise RefusedError(f"{told} ({shows} shows all)")
    return found
