# SPDX-License-Identifier: Apache-2.0
"""Take back what the hosts of a batch can while they serve."""

from __future__ import annotations

from edgetune.agent.vocabulary.kinds import KINDS
from edgetune.base.documents.batch import Batch
from edgetune.rollout.hosts.change import APPLY_TIMEOUT, ChangeResult, change_report
from edgetune.rollout.hosts.door import BatchStep
from edgetune.rollout.ownership.lease import Rollout
from edgetune.site.inventory import Host


@BatchStep
def restore_live(opened: Rollout, work: Batch) -> ChangeResult:
    """Take the live settings of the tuning back on the hosts of a batch that are not drained yet.

    A host that did so is not asked again. One that fails is, and stays where it is in its batch.
    """
    names = [name for name in work.at("planned") if not work.hosts[name].live_back]

    def request(host: Host) -> dict[str, object]:
        settings = opened.plan.profile_of(host.name).settings
        live = [own.id for own in settings if KINDS[own.kind].disruption == "live"]
        return {"tuning": opened.head.tuning, "rollout": opened.head.id, "live": live}

    answers = opened.ask_hosts(names, "restore", request, APPLY_TIMEOUT)
    for name, answer in answers.items():
        work.hosts[name].live_back = not answer.failed
        work.hosts[name].ours |= answer.changed
    return change_report(answers, "back in what they can take back while they serve", [])
