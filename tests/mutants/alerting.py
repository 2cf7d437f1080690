# SPDX-License-Identifier: Apache-2.0
"""Mistakes that would keep alerts of hosts from people, or would wake them for nothing."""

from __future__ import annotations

from tests.mutants.mutation import mutations_of

ALERTING = (
    *mutations_of(
        "lib/edgetune/alerting",
        ["lib_alerting"],
        (
            "a silence outlives its bound",
            "silences.py",
            "_written(now + bound)",
            "_written(now + 1000 * bound)",
        ),
        (
            "a silence is bounded by a clock that is not Alertmanager's",
            "conversation.py",
            '        return parsedate_to_datetime(date or "").timestamp()\n',
            "        return time.time()\n",
        ),
        (
            "a silence of a person is ended",
            "silences.py",
            "own.createdBy == PACK and ",
            "",
        ),
        (
            "what a renewal finds is put a second time",
            "silences.py",
            '        **({"id": before.id} if before else {}),\n',
            "",
        ),
        (
            "an answer of Alertmanager may take for ever",
            "conversation.py",
            "        self._cut.start()\n",
            "",
        ),
    ),
    *mutations_of(
        "lib/edgetune/rollout",
        ["rollout_silences"],
        (
            "a host is withdrawn before its alerts are silenced",
            "steps/drain_hosts.py",
            '"draining")\n    keep_silenced(opened, work)\n',
            '"draining")\n',
        ),
        (
            "a host that serves again stays silenced",
            "steps/undrain_hosts.py",
            "    keep_silenced(opened, work)\n",
            "",
        ),
        (
            "a quarantined host stays silenced",
            "silencing.py",
            "h.step not in SETTLED_STEPS",
            'h.step not in ("done", "skipped")',
        ),
        (
            "a silence is not renewed",
            "silencing.py",
            "return not is_recent or (",
            "return (",
        ),
        (
            "an Alertmanager that is away is waited for at each step",
            "silencing.py",
            " and not before.problem)",
            ")",
        ),
        (
            "a silence of one host silences another one, too",
            "silencing.py",
            "    if problem or not known:\n",
            "    if not known:\n",
        ),
    ),
)
