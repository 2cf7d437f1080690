# SPDX-License-Identifier: Apache-2.0
"""Take the tuning back on the hosts of a batch."""

from __future__ import annotations

from collections.abc import Sequence

from edgetune.base import clock
from edgetune.base.documents.batch import Batch
from edgetune.base.documents.host import WayBack
from edgetune.base.durations import utc
from edgetune.net.result import HostResult
from edgetune.rollout.hosts import change
from edgetune.rollout.hosts.change import ChangeResult
from edgetune.rollout.hosts.door import BatchStep
from edgetune.rollout.hosts.drain import keep_out
from edgetune.rollout.order import WaitingResult, after_change, retry_after
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.rollout import Record

# Seconds between two looks at hosts that take a change back by themselves.
_LOOK = (5, 15)


class RestoreResult(ChangeResult, WaitingResult):
    """By host what it took back; ``waiting`` hosts may yet do so by themselves."""


@BatchStep
def restore_hosts(opened: Rollout, work: Batch) -> RestoreResult:
    """Take the tuning back on the drained hosts of a batch, from each host's own journal."""
    names = work.at("drained", "changing")
    names = keep_out(opened, work, names)
    silent = _foresee(opened, work, names)
    known = [name for name in names if name not in silent]
    opened.move(work, known, "changing")
    tuned, others = change.by_agent(opened, known)
    answers = opened.ask_hosts(
        tuned,
        "restore",
        lambda host: {
            "rollout": opened.head.id,
            "drained": change.was_drained(opened, work, host),
            "tuning": opened.head.tuning,
        },
        change.APPLY_TIMEOUT,
    )
    answers.update(change.reach(opened, others))
    for name, answer in answers.items():
        work.hosts[name].ours |= answer.changed
        if not answer.failed:
            work.hosts[name].reverts_at = 0.0
    answers = {**silent, **answers}
    waiting = [
        name for name, told in answers.items() if change.waits_for_revert(opened, work, told)
    ]
    final = {name: told for name, told in answers.items() if name not in waiting}
    report = change.write_answers(opened, work, final, "changed")
    if waiting:
        each = ", ".join(f"{n} (until {utc(work.hosts[n].reverts_at)})" for n in waiting)
        waits_for = "waiting for hosts to take their change back by themselves"
        report["message"] = f"{waits_for}: {each}"
    waited = clock.now() - min((work.hosts[name].at for name in waiting), default=0.0)
    return {
        **report,
        "waiting": len(waiting),
        "next": "restore_hosts" if waiting else after_change(work),
        "retry_after": retry_after(opened.config, waited, *_LOOK) if waiting else 0,
    }


def _foresee(opened: Record, work: Batch, names: Sequence[str]) -> dict[str, HostResult]:
    """Write down what the hosts' journals lead back to, where the plan saw something else.

    Tunings that came later hold settings, and some that the plan saw may stand no more.
    Failures are those that do not tell.
    """
    answers = change.ask_settings(opened, change.by_agent(opened, names)[0], "verify")
    told = {name: answer for name, answer in answers.items() if not answer.failed}
    for name, answer in told.items():
        seen, goes_back_to = change.settings_before(opened, name), work.hosts[name].goes_back_to
        goes_back_to.update(
            {
                own: led
                for own, led in answer.read(WayBack).way_back.items()
                if not change.is_same(led, seen.get(own))
            }
        )
    return {name: answer for name, answer in answers.items() if answer.failed}
