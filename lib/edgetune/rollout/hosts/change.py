# SPDX-License-Identifier: Apache-2.0
"""What the steps ask of agents that change hosts, prove the change or take it back; and when a
host takes a change back by itself that nobody confirmed over a new connection.

A change to the network can cut a host off, so the agent waits for a confirmation only as long as
this module says. Until then an unreachable host may come back, and a rollback waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

from edgetune.agent.vocabulary.kinds import KINDS
from edgetune.base import clock
from edgetune.base.documents.batch import Batch, HostStep
from edgetune.base.documents.reading import encoded
from edgetune.base.documents.settings import HostSetting, Standing, standings
from edgetune.base.durations import utc
from edgetune.intent.plan import settings_by_agent
from edgetune.net.result import HostResult
from edgetune.rollout.hosts.quarantine import fail_host
from edgetune.rollout.order import BatchResult
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.rollout import Record
from edgetune.site.inventory import Host

APPLY_TIMEOUT = 120
# What the hosts that are asked at once take for an apply, the workflow engine to get to the next
# step, and the hosts to connect, to be connected to from many ports, and to verify, in seconds.
_ROUND = 80.0
# A reboot comes before the confirmation, and the BIOS of each host is proven after it.
_AFTER_REBOOT = 300.0
# What the host needs to take its change back, and for its network to come up again.
_MARGIN = 60.0
INSTALL_TIMEOUT = 480
"""Of an apply that installs a kernel: dpkg and its hooks may take minutes."""


def can_cut_off(settings: Iterable[HostSetting]) -> bool:
    """Whether settings can take a host off the network."""
    return any(KINDS[own.kind].can_cut_off(own.target) for own in settings)


def apply_timeout(opened: Record) -> int:
    """How long a host may take to apply the tuning, in seconds."""
    profiles = opened.plan.profiles
    installs = any(own.kind == "kernel.package" for each in profiles for own in each.settings)
    return INSTALL_TIMEOUT if installs else APPLY_TIMEOUT


def _way_back(opened: Record) -> float:
    """How long a host takes to take its change back: a kernel goes with another boot."""
    return _MARGIN + (opened.config.reboot_deadline if opened.plan.tries_boots else 0)


def confirm_window(opened: Record, hosts: int) -> float:
    """How long a host waits for its confirmation, in seconds, where ``hosts`` are changed at once.

    Longer than ``verify_hosts`` goes on asking a host that does not answer.
    """
    config = opened.config
    if opened.plan.reboots:
        return _AFTER_REBOOT + config.reboot_deadline
    rounds = math.ceil(max(hosts, 1) / config.ssh_threads)
    return config.health_deadline + rounds * _ROUND


def expect_revert(opened: Record, work: Batch, names: Sequence[str], begun_in: float) -> None:
    """Note when hosts have reverted at the latest whose wait begins in ``begun_in`` s at most."""
    window = confirm_window(opened, len(work.hosts))
    for name in names:
        work.hosts[name].reverts_at = clock.now() + begun_in + window + _way_back(opened)


def may_still_revert(opened: Record, host: HostStep) -> bool:
    """Whether a host that cannot be reached may yet come back by taking its change back."""
    config, now = opened.config, clock.now()
    longest = config.health_deadline + apply_timeout(opened) + config.reboot_deadline
    longest += _way_back(opened)
    longest += confirm_window(opened, len(opened.pop.hosts))
    # A clock that was set back makes nobody wait for longer than it can take.
    host.reverts_at = min(host.reverts_at, now + longest)
    return now < host.reverts_at


def waits_for_revert(opened: Record, work: Batch, answer: HostResult) -> bool:
    """Whether a rollback has to wait for a host that gave this answer."""
    host = work.hosts[answer.host]
    silent = answer.reason == "unreachable" and work.batch_type == "restore"
    return silent and may_still_revert(opened, host)


def revert_text(host: HostStep) -> str:
    """Until when a rollback waits for a host that does not answer."""
    return f"does not answer, and may take its change back by itself until {utc(host.reverts_at)}"


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
