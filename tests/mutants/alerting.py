# SPDX-License-Identifier: Apache-2.0
"""Mistakes that would keep alerts of hosts from people, or would wake them for nothing."""

from __future__ import annotations

from tests.mutants.mutation import mutations_of

ALERTING = (
    *mutations_of(
        "lib/edgetune/alerting",
        ["lib/alerting/test_alerting"],
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
            "        return clock.wall()\n",
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
            "a silence of another rollout is ended",
            "silences.py",
            " and mark in own.matchers",
            "",
        ),
        (
            "a silence that Alertmanager has forgotten ends the attempt",
            "silences.py",
            "            declined[silence.id] = error\n",
            "            raise\n",
        ),
        (
            "a silence that could not be ended passes for over",
            "silences.py",
            "        if silence.id in declined:\n",
            "        if False:\n",
        ),
        (
            "a silence that cannot be renewed is not put anew",
            "silences.py",
            "        if not before:\n            raise\n",
            "        raise\n",
        ),
        (
            "each attempt has time for the same hosts",
            "silences.py",
            'sorted(lasting, key=lambda own: own[1].endsAt if own[1] else "")',
            "lasting",
        ),
        (
            "one member of a cluster takes all the time",
            "silences.py",
            "share = (end - clock.monotonic()) / left",
            "share = end - clock.monotonic()",
        ),
        (
            "the first member of a cluster is asked alone",
            "silences.py",
            "range(len(settings.url), 0, -1)",
            "range(len(settings.url), len(settings.url) - 1, -1)",
        ),
        (
            "a post that names no silence has put one",
            "silences.py",
            'not isinstance(answer, dict) or not answer.get("silenceID")',
            "False",
        ),
        (
            "an id that is no text is one of a silence",
            "silences.py",
            "        if not all(_is_whole(own) for own in found):\n            raise TypeError\n",
            "",
        ),
        (
            "a redirect is an answer of Alertmanager",
            "conversation.py",
            "if not 200 <= answer.status < 300:",
            "if not 200 <= answer.status < 400:",
        ),
    ),
    *mutations_of(
        "lib/edgetune",
        ["lib/test_alertmanager", "lib/prometheus/test_client"],
        (
            "an IPv6 address stands before a port without brackets",
            "addresses.py",
            'template.replace("{address}:", f"[{address}]:")',
            "template",
        ),
        (
            "matchers that name no host silence all of them",
            "alertmanager.py",
            "if not any(_OF_A_HOST.search(text) for text in read.matchers.values()):",
            "if False:",
        ),
        (
            "a silence ends before a dead owner is missed",
            "config.py",
            "if config.alertmanager.url and config.alertmanager.bound <= config.owner_timeout:",
            "if False:",
        ),
    ),
    *mutations_of(
        "lib/edgetune/rollout",
        ["lib/rollout/test_silences"],
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
            "a clock that was set back leaves a silence to its end",
            "silencing.py",
            "is_recent = 0 <= age < ",
            "is_recent = age < ",
        ),
        (
            "Alertmanager is asked before the record says for which hosts",
            "silencing.py",
            "    if hosts != before.hosts:\n",
            "    if False:\n",
        ),
        (
            "a silence that could not be ended is forgotten",
            "silencing.py",
            "work.silence = Silence(hosts if problem else out,",
            "work.silence = Silence(out,",
        ),
        (
            "the history is filled with one problem",
            "silencing.py",
            "if problem and not any(entry.reason.startswith(_FAILED) for entry in "
            "opened.head.history):",
            "if problem:",
        ),
        (
            "a silence of one host silences another one, too",
            "silencing.py",
            "    if problem or not known:\n",
            "    if not known:\n",
        ),
    ),
)
