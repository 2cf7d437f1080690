# SPDX-License-Identifier: Apache-2.0
"""Mistakes that would leave a BIOS half set, set that of somebody else, or lock an account."""

from __future__ import annotations

from tests.mutants.mutation import mutations_of

ANSWERS = mutations_of(
    "lib/edgetune/bmc",
    ["lib/bmc/test_registry", "lib/bmc/test_machines", "lib/bmc/test_setting", "lib/bmc/test_bios"],
    (
        "a settings object of another type says that nothing is pending",
        "bios.py",
        'kind in ("Bios", "Settings") if kind else',
        "True if kind else",
    ),
    (
        "a settings object that says why it shows nothing says that nothing is pending",
        "bios.py",
        " and not any(map(is_bad, messages_of(data) + messages_of(about)))",
        "",
    ),
    (
        "what a rule locks now is locked for ever",
        "registry.py",
        "            if rule is None and is_raised and not self._raises(name, flag, current):\n",
        "            if rule is None and is_raised:\n",
    ),
    (
        "what an unknown cause locks is open",
        "registry.py",
        "            if rule is None and is_raised and not self._raises(name, flag, current):\n",
        "            if False:\n",
    ),
    (
        "a profile that locks another value is taken for one that has it",
        "registry.py",
        "            return self.tells(name, value, after) and (name in back or not is_vain)\n",
        "            return name in back or not is_vain\n",
    ),
    (
        "what a profile has not made of another comes with the next boot",
        "registry.py",
        "(name in back or not is_vain)",
        "True",
    ),
    (
        "a change that came while ours was withdrawn is cleared with it",
        "setting.py",
        "        if ours:\n            state.refuse_foreign(*ours)\n",
        "",
    ),
    (
        "a job of the BIOS that runs already is taken away",
        "jobs.py",
        '        if job.state != "waiting":\n',
        '        if job.state == "ended":\n',
    ),
    (
        "an update of firmware that runs is broken off by a reboot",
        "jobs.py",
        'and (job.state == "waiting" or "Firmware" in job.kind)',
        'and job.state == "waiting"',
    ),
    (
        "what a BIOS has against our change is not told if another attribute is wanted back",
        "checking.py",
        "    names = {**request.ours, **wanted}\n",
        "    names = dict(wanted)\n",
    ),
    (
        "a machine in POST has lost what it is about to read",
        "checking.py",
        "    if posting and (lost or waits):\n",
        "    if posting and waits:\n",
    ),
    (
        "a machine that is off is reset",
        "reset.py",
        '    if kind != ON and power != "On":\n',
        '    if kind != ON and power == "":\n',
    ),
    (
        "of several systems the first is taken",
        "system.py",
        "    if len(chosen) != 1:\n",
        "    if not chosen:\n",
    ),
)

CONVERSATIONS = mutations_of(
    "lib/edgetune/bmc",
    ["lib/bmc/test_client", "lib/bmc/test_bmcs"],
    (
        "a change is sent after another login though it is permitted no more",
        "client.py",
        "            self._permit()\n            return self._send(",
        "            return self._send(",
    ),
    (
        "a BMC that knows nobody is logged in to for ever",
        "client.py",
        "        self._may_log_in_again = False\n        self._headers.pop",
        "        self._headers.pop",
    ),
    (
        "a session of somebody else is deleted, which has the id of ours that ended",
        "client.py",
        '_sessions.items():\n                self._headers["X-Auth-Token"] = token\n',
        "_sessions.items():\n",
    ),
    (
        "one BMC that took a login proves it",
        "logins.py",
        "_PROOF = 2\n",
        "_PROOF = 1\n",
    ),
    (
        "a BMC that took a login before proves it, though it refuses it now",
        "logins.py",
        "                self._took[name].discard(address)\n",
        "",
    ),
)

STEPS = mutations_of(
    "lib/edgetune/rollout",
    [
        "lib/rollout/test_bios_journals",
        "lib/rollout/steps/test_reset",
        "lib/rollout/steps/test_kernels",
        "lib/rollout/test_bios_redfish",
    ],
    (
        "in a rollback one BMC that refuses a login leaves the others tuned",
        "hosts.py",
        'refusals = 2 if opened.head.state == "rolling_back" else 1',
        "refusals = 1",
    ),
    (
        "a tuning that is taken back from below is handed over to all above it",
        "bios_journal.py",
        "                    later.changes[name].was = change.was\n                    break\n",
        "                    later.changes[name].was = change.was\n",
    ),
    (
        "a BIOS whose record cannot be read has not drifted",
        "bios_drift.py",
        'answers = {**unread, **context.bmcs.ask(tuned, "check", request)}',
        'answers = context.bmcs.ask(tuned, "check", request)',
    ),
    (
        "a stop between two resets forgets the one that was sent",
        "restart.py",
        "        leave(set(ways) - asked)\n",
        "        leave(ways)\n",
    ),
    (
        "whoever takes over gives a host that hangs no time",
        "restart.py",
        "    return max(work.hosts[name].at, opened.head.taken_over)\n",
        "    return work.hosts[name].at\n",
    ),
    (
        "a machine that was turned on again has its time anew each time",
        "restart.py",
        "            host.at = host.at if ON in host.resets else clock.now()\n",
        "            host.at = clock.now()\n",
    ),
    (
        "a BMC that refuses our login is asked in the next way",
        "restart.py",
        'shown.resets if shown and answer.reason == "auth" else []',
        "[]",
    ),
)

BMC = (*ANSWERS, *CONVERSATIONS, *STEPS)
