# SPDX-License-Identifier: Apache-2.0
"""What the steps ask of agents that change hosts, prove the change or take it back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from edgetune.base.documents.batch import Batch
from edgetune.base.documents.reading import encoded
from edgetune.base.documents.settings import HostSetting, Standing, standings
from edgetune.intent.plan import settings_by_agent
from edgetune.net.result import HostResult
from edgetune.rollout.hosts.quarantine import fail_host
from edgetune.rollout.order import BatchResult
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.rollout import Record
from edgetune.site.inventory import Host


def is_same(one: Standing | None, other: Standing | None) -> bool:
    """Whether two values of a setting are the same, or neither is there."""
    return one.is_like(other) if one and other else one is other


def settings_before(opened: Record, host: str) -> dict[str, Standing]:
    """Each of the agent's settings on a host as the plan saw it, by its id."""
    return standings(settings_by_agent(opened.plan.profile_of(host).before))


def by_agent(opened: Record, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Those hosts on which the agent has settings to change, and the others."""
    tuned = [name for name in names if agent_settings(opened, name)]
    return tuned, [name for name in names if name not in tuned]


def agent_settings(opened: Record, host: str) -> list[HostSetting]:
    """The settings of the plan that the agent of a host changes."""
    return settings_by_agent(opened.plan.profile_of(host).settings)


def was_drained(opened: Record, work: Batch, host: Host) -> bool:
    """Whether the host must refuse where it may serve: another machine was drained then.

    Another rollout may have become unreadable since this host went on without a drain. What
    was taken out of a live rollout by quarantine need not have been told that it is drained.
    """
    return opened.drains and work.hosts[host.name].lb_before is not None


def settings_request(opened: Record, host: Host) -> dict[str, object]:
    """What an agent is asked about a tuning that is not being changed."""
    return {
        "tuning": opened.head.tuning,
        "digest": opened.plan.tuning.digest,
        "settings": encoded(agent_settings(opened, host.name)),
    }


def ask_settings(opened: Record, names: Sequence[str], verb: str) -> dict[str, HostResult]:
    """Ask hosts what they say of the tuning, over and over for ``health_deadline``."""
    patience = opened.config.health_deadline
    return opened.ask(names, verb, lambda host: settings_request(opened, host), patience=patience)


def reach(opened: Record, names: Sequence[str]) -> dict[str, HostResult]:
    """Ask hosts for their facts over and over for ``health_deadline``; failures stay silent."""
    return opened.ask(names, "facts", patience=opened.config.health_deadline)


class HostChange(TypedDict):
    """What one host did, or why it failed; a row of ``diff`` for each setting."""

    changed: bool
    failed: bool
    diff: list[dict[str, object]]
    error: str


class ChangeResult(BatchResult):
    """By host what it did."""

    hosts: dict[str, HostChange]


def write_answers(
    opened: Rollout, work: Batch, answers: Mapping[str, HostResult], step: str
) -> ChangeResult:
    """Write down what each host answered, and report it."""
    failed = []
    for name, answer in answers.items():
        if answer.failed:
            if fail_host(opened, work, name, str(answer.error)):
                failed.append(name)
        else:
            work.hosts[name].go(step)
            work.hosts[name].boot_before = answer.boot_id
    opened.save_batch(work)
    return change_report(answers, step, failed)


def change_report(
    answers: Mapping[str, HostResult], step: str, failed: Sequence[str]
) -> ChangeResult:
    """The result of an action that had agents do something."""
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
