# SPDX-License-Identifier: Apache-2.0
"""Prove that the hosts of a batch are as wanted, and that their service answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from edgetune.base import clock
from edgetune.base.documents.batch import Batch
from edgetune.base.documents.host import ProvenSettings, SeenSettings, VerifiedSettings
from edgetune.base.documents.settings import Standing, standings, was_and_is_text
from edgetune.net.result import HostResult
from edgetune.rollout.hosts import change
from edgetune.rollout.hosts.bios import forget, settled
from edgetune.rollout.hosts.change import ChangeResult, can_cut_off
from edgetune.rollout.hosts.door import BatchStep
from edgetune.rollout.hosts.drain import POLL
from edgetune.rollout.hosts.health import sick_services
from edgetune.rollout.hosts.in_service import set_ready
from edgetune.rollout.order import after_proof
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.rollout import Record


class VerifiedResult(ChangeResult):
    """The batch goes on at the task ``next``."""

    next: str


@BatchStep
def verify_hosts(opened: Rollout, work: Batch) -> VerifiedResult:
    """Prove over new connections that hosts are as they should be and that their service answers.

    So is their BIOS, where the tuning has to do with it. Changed hosts are confirmed by it: a
    provisional change becomes a kept one. What a boot tried is confirmed last, once the service
    has answered: a kernel becomes the default by it. Restored hosts are compared with what the plan
    saw before; what was never ours need only answer. Hosts that served all the while are done.
    """
    names = work.at("changed", "rebooted") if work.batch_type != "sham" else work.at("rebooted")
    answers = _proofs(opened, work, names)
    well = [name for name in names if not answers[name].failed]
    if opened.sets_bios and work.batch_type != "sham":
        wrong = _wrong_bios(opened, work, well)
        answers, well = {**answers, **wrong}, [name for name in well if name not in wrong]
    answers = {**answers, **_serve(opened, work, well)}
    answers = {**answers, **_keep(opened, work, answers)}
    if work.batch_type == "restore":
        forget(opened, [name for name in well if not answers[name].failed])
    report = change.write_answers(opened, work, answers, "verified")
    served = [name for name in work.at("verified") if work.hosts[name].lb_before is None]
    if served:
        opened.move(work, served, "done")
    return {**report, "next": after_proof(work)}


def _wrong_bios(opened: Rollout, work: Batch, names: Sequence[str]) -> dict[str, HostResult]:
    """Whose BIOS is not as it should be.

    A BMC that is busy, or whose answer is lost, is asked again for ``health_deadline``.
    """
    deadline = clock.monotonic() + opened.config.health_deadline
    wrong: dict[str, HostResult] = {}
    while names:
        answers = settled(opened, work, names)
        wrong.update((name, answer) for name, answer in answers.items() if answer.failed)
        names = [name for name, answer in answers.items() if answer.reason == "busy"]
        if not names or clock.monotonic() > deadline:
            break
        clock.sleep(POLL)
        opened.permit()
        wrong = {name: answer for name, answer in wrong.items() if name not in names}
    return wrong


def _serve(opened: Rollout, work: Batch, names: Sequence[str]) -> dict[str, HostResult]:
    """Let the hosts say that they are ready; failures are those that do not answer well then."""
    drained = [name for name in names if work.hosts[name].lb_before is not None]
    told = set_ready(opened, drained, ready=True)
    deaf = {name: answer for name, answer in told.items() if answer.failed}
    sick = _healthy(opened, [name for name in names if name not in deaf])
    set_ready(opened, [name for name in sick if name in drained], ready=False)
    return {**deaf, **sick}


def _proofs(opened: Rollout, work: Batch, names: Sequence[str]) -> dict[str, HostResult]:
    tuned, others = change.by_agent(opened, names)
    if work.batch_type == "change":
        tried = [name for name in tuned if opened.plan.tries_a_boot(name)]
        kept = [name for name in tuned if name not in tried]
        seen = _confirm(opened, work, kept)
        return {**seen, **_verify(opened, tried), **change.reach(opened, others)}
    ours = [name for name in tuned if work.hosts[name].ours]
    others = [name for name in names if name not in ours]
    return {
        **_compare_with_before(opened, work, ours),
        **change.reach(opened, others),
    }


def _confirm(opened: Rollout, work: Batch, names: Sequence[str]) -> dict[str, HostResult]:
    lost = _lost_connections(opened, names)
    reached = [name for name in names if name not in lost]
    answers = opened.ask_hosts(
        reached, "confirm", lambda host: change.settings_request(opened, host)
    )
    found = {name: _confirmed(answer) for name, answer in answers.items()}
    for name, answer in found.items():
        if not answer.failed:
            work.hosts[name].reverts_at = 0.0
    return {**lost, **found}


def _lost_connections(opened: Rollout, names: Sequence[str]) -> dict[str, HostResult]:
    """Whose network was changed, and who cannot be reached from each of many ports since."""
    changed = [name for name in names if can_cut_off(change.agent_settings(opened, name))]
    found = change.reach(opened, changed)
    there = [name for name in changed if not found[name].failed]
    lost = opened.context.fleet.lost_connections(opened.hosts(there), opened.pop.ports)
    silent = {name: answer for name, answer in found.items() if answer.failed}
    return {
        **silent,
        **{
            name: HostResult(name, error=f"not verified: {why}", reason="failed")
            for name, why in lost.items()
        },
    }


def _verify(opened: Record, names: Sequence[str]) -> dict[str, HostResult]:
    """Whether hosts run what a boot was to try; nothing is confirmed by it."""
    answers = change.ask_settings(opened, names, "verify")
    return {name: _has_run(answer) for name, answer in answers.items()}


def _keep(opened: Rollout, work: Batch, answers: Mapping[str, HostResult]) -> dict[str, HostResult]:
    """Confirm what a boot tried on hosts that are well; one that will not says so again."""
    changes = work.batch_type == "change"
    well = [name for name, answer in answers.items() if changes and not answer.failed]
    names = [name for name in well if opened.plan.tries_a_boot(name)]
    found = _confirm(opened, work, names)
    left = [name for name, answer in found.items() if answer.failed]
    set_ready(opened, [name for name in left if work.hosts[name].lb_before], ready=False)
    return found


def _confirmed(answer: HostResult) -> HostResult:
    """The answer, or the failure that it is."""
    told = None if answer.failed else answer.read(ProvenSettings)
    return _not_verified(answer, told) if told and not told.confirmed else answer


def _has_run(answer: HostResult) -> HostResult:
    """The same of what a boot was to try."""
    told = None if answer.failed else answer.read(VerifiedSettings)
    if told is None or told.verified:
        return answer
    back = "the host has taken its change back by itself: " if told.state == "none" else ""
    found = _not_verified(answer, told)
    return replace(found, error=f"{back}{found.error}")


def _not_verified(answer: HostResult, told: VerifiedSettings) -> HostResult:
    wrong = [
        f"{row.id} is {row.runtime}, stored {row.persistent}: {row.reason}"
        for row in told.settings
        if not row.ok
    ]
    wrong += [
        f"{count} connections from the host to {peer} get no answer since the change"
        for peer, count in told.lost_connections.items()
    ]
    error = "; ".join(wrong) or f"its change is {told.state}"
    return HostResult(answer.host, error=f"not verified: {error}", reason="failed")


def _compare_with_before(
    opened: Record, work: Batch, names: Sequence[str]
) -> dict[str, HostResult]:
    answers = change.ask_settings(opened, names, "plan")
    before: dict[str, dict[str, Standing | None]] = {
        name: {**change.settings_before(opened, name), **work.hosts[name].goes_back_to}
        for name in names
    }
    return {name: _is_as(before[name], answer) for name, answer in answers.items()}


def _is_as(before: Mapping[str, Standing | None], answer: HostResult) -> HostResult:
    if answer.failed:
        return answer
    now = standings(answer.read(SeenSettings).settings)
    wrong = [
        f"{name} {was_and_is_text(was, now.get(name))}"
        for name, was in before.items()
        if was is not None and not change.is_same(was, now.get(name))
    ]
    if not wrong:
        return answer
    return HostResult(answer.host, error=f"not as before: {'; '.join(wrong)}", reason="failed")


def _healthy(opened: Rollout, names: Sequence[str]) -> dict[str, HostResult]:
    """Ask the service on each host until it answers; failures are those that never did."""
    deadline = clock.monotonic() + opened.config.health_deadline
    while True:
        sick = sick_services(opened.context, opened.pop, opened.hosts(names))
        if not sick or clock.monotonic() > deadline:
            return {
                name: HostResult(name, error=why, reason="failed") for name, why in sick.items()
            }
        clock.sleep(POLL)
        opened.permit()
