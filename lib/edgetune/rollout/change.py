# SPDX-License-Identifier: Apache-2.0
"""Change the hosts of a batch, prove that they are as wanted, and take the change back."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from edgetune import steady_clock
from edgetune.documents.batch import Batch
from edgetune.hosts.result import HostResult
from edgetune.inventory import Host
from edgetune.plan import settings_by_agent
from edgetune.report.text import was_and_is_text
from edgetune.rollout.bios import forget, settled
from edgetune.rollout.drain import keep_out
from edgetune.rollout.health import sick_services
from edgetune.rollout.hosts import ask_hosts
from edgetune.rollout.lease import Rollout, open_rollout
from edgetune.rollout.quarantine import fail_host
from edgetune.rollout.readiness import set_ready
from edgetune.rollout.record import Record
from edgetune.rollout.reverts import (
    APPLY_TIMEOUT,
    can_cut_off,
    confirm_window,
    expect_revert,
    waiting_text,
    waits_for_revert,
)
from edgetune.rollout.site import Site
from edgetune.rollout.steps import after_change, after_proof, again_in
from edgetune.vocabulary.contents import same_values
from edgetune.vocabulary.kinds import KINDS

_POLL = 1.0
# Seconds between two looks at hosts that take a change back by themselves.
_LOOK = (5, 15)
# What an agent answers that changed nothing, or has proven that all is as before.
_UNTOUCHED = ("refused", "bad_request", "undone")


def apply_tuning(site: Site, rollout: str, epoch: int, batch: int) -> dict[str, Any]:
    """Change the drained hosts of a batch to what the plan shows, and nothing else.

    A host that is not as the plan saw it refuses. Repeated, it changes nothing.
    """
    opened = open_rollout(site, rollout, epoch)
    work = opened.batch(batch)
    names = work.at("drained", "changing")
    keep_out(opened, work, names)
    tuned, others = _by_agent(opened, names)
    provisional = [name for name in tuned if _cuts_off(opened, name)]
    expect_revert(opened, work, provisional, site.config.health_deadline + APPLY_TIMEOUT)
    opened.move(work, names, "changing")
    window = confirm_window(opened, len(work.hosts))
    answers = ask_hosts(
        opened,
        tuned,
        "apply",
        lambda host: _apply_request(opened, work, host, window),
        APPLY_TIMEOUT,
    )
    answers.update(_reach(opened, opened.hosts(others)))
    answered = [name for name in provisional if not answers[name].failed]
    expect_revert(opened, work, answered, 0)
    for name in tuned:
        if answers[name].reason in _UNTOUCHED:
            work.hosts[name].reverts_at = 0.0
            work.hosts[name].go("drained")
    return {**_settled(opened, work, answers, "changed"), "next": after_change(work)}


def restore_hosts(
    site: Site, rollout: str, epoch: int, batch: int, live: bool = False
) -> dict[str, Any]:
    """Take the tuning back on the hosts of a batch, from each host's own journal.

    With ``live`` only what a host can take back while it serves: the rest of the batch waits.
    """
    opened = open_rollout(site, rollout, epoch)
    work = opened.batch(batch)
    if live:
        return _restore_live(opened, work)
    names = work.at("drained", "changing")
    keep_out(opened, work, names)
    silent = _foresee(opened, work, names)
    known = [name for name in names if name not in silent]
    opened.move(work, known, "changing")
    tuned, others = _by_agent(opened, known)
    answers = ask_hosts(
        opened, tuned, "restore", lambda host: _restore_request(opened, work, host), APPLY_TIMEOUT
    )
    answers.update(_reach(opened, opened.hosts(others)))
    for name, answer in answers.items():
        work.hosts[name].ours |= answer.changed
        if not answer.failed:
            work.hosts[name].reverts_at = 0.0
    answers = {**silent, **answers}
    waiting = [name for name, told in answers.items() if waits_for_revert(opened, work, told)]
    final = {name: told for name, told in answers.items() if name not in waiting}
    report = _settled(opened, work, final, "changed")
    if waiting:
        report["message"] = waiting_text(work, waiting)
    waited = steady_clock.now() - min((work.hosts[name].at for name in waiting), default=0.0)
    return {
        **report,
        "waiting": len(waiting),
        "next": "restore_hosts" if waiting else after_change(work),
        "again_in": again_in(site.config, waited, *_LOOK) if waiting else 0,
    }


def verify_hosts(site: Site, rollout: str, epoch: int, batch: int) -> dict[str, Any]:
    """Prove over new connections that hosts are as they should be and that their service answers.

    So is their BIOS, where the tuning has to do with it. Changed hosts are confirmed by it: a
    provisional change becomes a kept one. Restored hosts are compared with what the plan saw
    before; what was never ours need only answer. Hosts that served all the while are done.
    """
    opened = open_rollout(site, rollout, epoch)
    work = opened.batch(batch)
    names = work.at("changed", "rebooted") if work.what != "sham" else work.at("rebooted")
    answers = _proofs(opened, work, names)
    well = [name for name in names if not answers[name].failed]
    if opened.sets_bios and work.what != "sham":
        wrong = _wrong_bios(opened, work, well)
        answers, well = {**answers, **wrong}, [name for name in well if name not in wrong]
    answers = {**answers, **_serve(opened, work, well)}
    if work.what == "restore":
        forget(opened, [name for name in well if not answers[name].failed])
    report = _settled(opened, work, answers, "verified")
    served = [name for name in work.at("verified") if work.hosts[name].lb_before is None]
    if served:
        opened.move(work, served, "done")
    return {**report, "next": after_proof(work)}


def _wrong_bios(opened: Rollout, work: Batch, names: Sequence[str]) -> dict[str, HostResult]:
    """Whose BIOS is not as it should be.

    A BMC that is busy, or whose answer is lost, is asked again for ``health_deadline``.
    """
    deadline = time.monotonic() + opened.site.config.health_deadline
    wrong: dict[str, HostResult] = {}
    while names:
        answers = settled(opened, work, names)
        wrong.update((name, answer) for name, answer in answers.items() if answer.failed)
        names = [name for name, answer in answers.items() if answer.reason == "busy"]
        if not names or time.monotonic() > deadline:
            break
        time.sleep(_POLL)
        opened.lease.permit()
        wrong = {name: answer for name, answer in wrong.items() if name not in names}
    return wrong


def _foresee(opened: Record, work: Batch, names: Sequence[str]) -> dict[str, HostResult]:
    """Write down what the hosts' journals lead back to, where the plan saw something else.

    Tunings that came later hold settings, and some that the plan saw may stand no more.
    Failures are those that do not tell.
    """
    hosts, patience = opened.hosts(_by_agent(opened, names)[0]), opened.site.config.health_deadline
    answers = opened.site.fleet.ask(
        hosts, "verify", lambda host: _settings_request(opened, host), patience=patience
    )
    told = {name: answer.data["way_back"] for name, answer in answers.items() if not answer.failed}
    for name, way_back in told.items():
        seen, goes_back_to = _before(opened, name), work.hosts[name].goes_back_to
        goes_back_to.update(
            {own: led for own, led in way_back.items() if not _is(led, seen.get(own))}
        )
    return {name: answer for name, answer in answers.items() if answer.failed}


def _is(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
    return same_values(one, other) if one and other else one == other


def _before(opened: Record, host: str) -> dict[str, dict[str, Any]]:
    rows = settings_by_agent(opened.plan.profile_of(host).before)
    return {row["id"]: {key: row[key] for key in ("runtime", "persistent")} for row in rows}


def _by_agent(opened: Record, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Those hosts on which the agent has settings to change, and the others."""
    tuned = [name for name in names if _agent_settings(opened, name)]
    return tuned, [name for name in names if name not in tuned]


def _agent_settings(opened: Record, host: str) -> list[Mapping[str, Any]]:
    return settings_by_agent(opened.plan.profile_of(host).settings)


def _serve(opened: Rollout, work: Batch, names: Sequence[str]) -> dict[str, HostResult]:
    """Let the hosts say that they are ready; failures are those that do not answer well then."""
    drained = [name for name in names if work.hosts[name].lb_before is not None]
    told = set_ready(opened, drained, ready=True)
    deaf = {name: answer for name, answer in told.items() if answer.failed}
    sick = _healthy(opened, [name for name in names if name not in deaf])
    set_ready(opened, [name for name in sick if name in drained], ready=False)
    return {**deaf, **sick}


def _restore_live(opened: Rollout, work: Batch) -> dict[str, Any]:
    names = [name for name in work.at("planned") if not work.hosts[name].live_back]

    def request(host: Host) -> dict[str, Any]:
        settings = opened.plan.profile_of(host.name).settings
        live = [s["id"] for s in settings if KINDS[s["kind"]].disruption == "live"]
        return {"tuning": opened.head.tuning, "rollout": opened.head.id, "live": live}

    answers = ask_hosts(opened, names, "restore", request, APPLY_TIMEOUT)
    for name, answer in answers.items():
        work.hosts[name].live_back = not answer.failed
        work.hosts[name].ours |= answer.changed
    opened.save_batch(work)
    report = _report(answers, "back in what they can take back while they serve", [])
    return {**report, "waiting": 0, "next": "drain_hosts", "again_in": 0}


def _proofs(opened: Rollout, work: Batch, names: Sequence[str]) -> dict[str, HostResult]:
    tuned, others = _by_agent(opened, names)
    if work.what == "change":
        confirmed = _confirm(opened, tuned)
        for name in confirmed:
            if not confirmed[name].failed:
                work.hosts[name].reverts_at = 0.0
        return {**confirmed, **_reach(opened, opened.hosts(others))}
    ours = [name for name in tuned if work.hosts[name].ours]
    others = [name for name in names if name not in ours]
    return {
        **_compare_with_before(opened, work, ours),
        **_reach(opened, opened.hosts(others)),
    }


def _cuts_off(opened: Record, host: str) -> bool:
    return can_cut_off(_agent_settings(opened, host))


def _restore_request(opened: Record, work: Batch, host: Host) -> dict[str, Any]:
    return {
        "rollout": opened.head.id,
        "drained": _was_drained(opened, work, host),
        "tuning": opened.head.tuning,
    }


def _was_drained(opened: Record, work: Batch, host: Host) -> bool:
    """Whether the host must refuse where it may serve: another machine was drained then.

    Another rollout may have become unreadable since this host went on without a drain. What
    was taken out of a live rollout by quarantine need not have been told that it is drained.
    """
    return opened.drains and work.hosts[host.name].lb_before is not None


def _apply_request(opened: Record, work: Batch, host: Host, window: float) -> dict[str, Any]:
    return {
        "rollout": opened.head.id,
        "drained": _was_drained(opened, work, host),
        "tuning": opened.head.tuning,
        "digest": opened.plan.tuning.digest,
        "settings": _agent_settings(opened, host.name),
        "expect": _before(opened, host.name),
        "confirm_within": window if _cuts_off(opened, host.name) else 0,
        "grace_boots": 1 if opened.plan.reboots else 0,
    }


def _settings_request(opened: Record, host: Host) -> dict[str, Any]:
    return {
        "tuning": opened.head.tuning,
        "digest": opened.plan.tuning.digest,
        "settings": _agent_settings(opened, host.name),
    }


def _confirm(opened: Rollout, names: Sequence[str]) -> dict[str, HostResult]:
    answers = ask_hosts(opened, names, "confirm", lambda host: _settings_request(opened, host))
    return {name: _not_verified(answer) or answer for name, answer in answers.items()}


def _not_verified(answer: HostResult) -> HostResult | None:
    if answer.failed or answer.data.get("confirmed"):
        return None
    wrong = [
        f"{row['id']} is {row.get('runtime')}, stored {row.get('persistent')}: {row.get('reason')}"
        for row in answer.data.get("settings", [])
        if not row.get("ok")
    ]
    error = "; ".join(wrong) or f"its change is {answer.data.get('state')}"
    return HostResult(answer.host, error=f"not verified: {error}", reason="failed")


def _compare_with_before(
    opened: Record, work: Batch, names: Sequence[str]
) -> dict[str, HostResult]:
    hosts = opened.hosts(names)
    patience = opened.site.config.health_deadline
    answers = opened.site.fleet.ask(
        hosts, "plan", lambda host: _settings_request(opened, host), patience=patience
    )
    before = {name: {**_before(opened, name), **work.hosts[name].goes_back_to} for name in names}
    return {name: _not_as(before[name], answer) or answer for name, answer in answers.items()}


def _not_as(
    before: Mapping[str, Mapping[str, Any] | None], answer: HostResult
) -> HostResult | None:
    if answer.failed:
        return None
    now = {
        row["id"]: {"runtime": row["runtime"], "persistent": row["persistent"]}
        for row in answer.data["settings"]
    }
    wrong = [
        f"{name} {was_and_is_text(was, now.get(name))}"
        for name, was in before.items()
        if was is not None and not _is(was, now.get(name))
    ]
    if not wrong:
        return None
    return HostResult(answer.host, error=f"not as before: {'; '.join(wrong)}", reason="failed")


def _reach(opened: Record, hosts: Sequence[Host]) -> dict[str, HostResult]:
    patience = opened.site.config.health_deadline
    return opened.site.fleet.ask(hosts, "facts", lambda host: {}, patience=patience)


def _healthy(opened: Rollout, names: Sequence[str]) -> dict[str, HostResult]:
    """Ask the service on each host until it answers; failures are those that never did."""
    deadline = time.monotonic() + opened.site.config.health_deadline
    while True:
        sick = sick_services(opened.site, opened.pop, opened.hosts(names))
        if not sick or time.monotonic() > deadline:
            return {
                name: HostResult(name, error=why, reason="failed") for name, why in sick.items()
            }
        time.sleep(_POLL)
        opened.lease.permit()


def _settled(
    opened: Rollout, work: Batch, answers: Mapping[str, HostResult], step: str
) -> dict[str, Any]:
    """Write down what each host answered, and report it."""
    failed = []
    for name, answer in answers.items():
        if answer.failed:
            if fail_host(opened, work, name, str(answer.error)):
                failed.append(name)
        else:
            work.hosts[name].go(step)
            work.hosts[name].boot_before = answer.data.get("boot_id")
    opened.save_batch(work)
    return _report(answers, step, failed)


def _report(answers: Mapping[str, HostResult], step: str, failed: Sequence[str]) -> dict[str, Any]:
    errors = "; ".join(f"{a.host}: {a.error}" for a in answers.values() if a.failed)
    return {
        "hosts": {
            name: {"changed": a.changed, "failed": a.failed, "diff": a.diff, "error": a.error or ""}
            for name, a in answers.items()
        },
        "failed": list(failed),
        "error": errors,
        "message": errors or f"{len(answers)} {step}",
    }
