# SPDX-License-Identifier: Apache-2.0
"""Change the drained hosts of a batch to what the plan shows."""

from __future__ import annotations

from edgetune.base.documents.batch import Batch
from edgetune.base.documents.reading import encoded
from edgetune.rollout.hosts import change
from edgetune.rollout.hosts.change import ChangeResult
from edgetune.rollout.hosts.door import BatchStep
from edgetune.rollout.hosts.drain import keep_out
from edgetune.rollout.order import NextResult, after_change
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.rollout import Record
from edgetune.site.inventory import Host

# What an agent answers that changed nothing, or has proven that all is as before.
_UNTOUCHED = ("refused", "bad_request", "undone")


class AppliedResult(ChangeResult, NextResult):
    """By host what it did, and how the batch goes on."""


@BatchStep
def apply_tuning(opened: Rollout, work: Batch) -> AppliedResult:
    """Change the drained hosts of a batch to what the plan shows, and nothing else.

    A host that is not as the plan saw it refuses. Repeated, it changes nothing.
    """
    names = work.at("drained", "changing")
    names = keep_out(opened, work, names)
    tuned, others = change.by_agent(opened, names)
    provisional = [name for name in tuned if _cuts_off(opened, name)]
    longest = change.apply_timeout(opened)
    change.expect_revert(opened, work, provisional, opened.config.health_deadline + longest)
    opened.move(work, names, "changing")
    window = change.confirm_window(opened, len(work.hosts))
    answers = opened.ask_hosts(
        tuned,
        "apply",
        lambda host: _apply_request(opened, work, host, window),
        longest,
    )
    answers.update(change.reach(opened, others))
    answered = [name for name in provisional if not answers[name].failed]
    change.expect_revert(opened, work, answered, 0)
    for name in tuned:
        if answers[name].reason in _UNTOUCHED:
            work.hosts[name].reverts_at = 0.0
            work.hosts[name].go("drained")
    report = change.write_answers(opened, work, answers, "changed")
    return {**report, "next": after_change(work), "retry_after": 0}


def _cuts_off(opened: Record, host: str) -> bool:
    return change.can_cut_off(change.agent_settings(opened, host))


def _apply_request(opened: Record, work: Batch, host: Host, window: float) -> dict[str, object]:
    return {
        "rollout": opened.head.id,
        "drained": change.was_drained(opened, work, host),
        "tuning": opened.head.tuning,
        "digest": opened.plan.tuning.digest,
        "settings": encoded(change.agent_settings(opened, host.name)),
        "expect": encoded(change.settings_before(opened, host.name)),
        "confirm_within": window if _cuts_off(opened, host.name) else 0,
        "grace_boots": 1 if opened.plan.reboots else 0,
    }
