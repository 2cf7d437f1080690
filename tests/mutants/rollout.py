# SPDX-License-Identifier: Apache-2.0
"""Mistakes that would take the wrong host, too many hosts, or a rollout of somebody else."""

from __future__ import annotations

from tests.mutants.mutation import mutations_of

FOLDER = "lib/edgetune/rollout"

PROMOTION = mutations_of(
    FOLDER,
    ["lib/rollout/steps/test_rollout"],
    (
        "what no verdict promotes is promoted",
        "steps/set_rollout_state.py",
        'if state == "promoting" != head.state and decided != Decision.PROMOTE:',
        "if False:",
    ),
)

PEOPLE = mutations_of(
    "lib/edgetune",
    ["lib/test_people", "lib/rollout/steps/test_approval"],
    (
        "what a chat puts around a name makes another person of it",
        "people.py",
        "    mention = _MENTION.fullmatch(shown)\n",
        "    mention = None\n",
    ),
    (
        "a domain makes another person of a name",
        "people.py",
        '    return re.split(r"[@:/+]", account, maxsplit=1)[0]\n',
        "    return account\n",
    ),
    (
        "an account may approve what a name asked for that may be its own",
        "people.py",
        "    if first.account and second.account:\n",
        "    if first.account or second.account:\n",
    ),
    (
        "the label of a mention is all that is compared",
        "people.py",
        "    return whom.names | frozenset(filter(None, [whom.account]))\n",
        "    return whom.names\n",
    ),
    (
        "an approval of nobody counts",
        "campaign/approve.py",
        "    if not person(requested_by):\n",
        "    if False:\n",
    ),
)

WAITS = (
    *mutations_of(
        FOLDER,
        ["lib/rollout/steps/test_pause_after"],
        (
            "nobody waits for the person whom the plan asks for",
            "steps/drain_hosts.py",
            "    pause_as_planned(opened, work.number)\n",
            "",
        ),
        (
            "a rollout goes on because another one was resumed",
            "pause_after.py",
            "    return pause if pause and pause.rollout == rollout else None\n",
            "    return pause\n",
        ),
    ),
    *mutations_of(
        FOLDER,
        ["lib/rollout/steps/test_freeze"],
        (
            "freezes of the configuration hold no rollout up",
            "freeze.py",
            "[*context.config.closed, *read_written(head.freezes)]",
            "[*read_written(head.freezes)]",
        ),
    ),
    *mutations_of(
        FOLDER,
        ["lib/rollout/steps/test_only"],
        (
            "hosts that only= does not name are changed",
            "chosen.py",
            "if not options.only or host.name in kept]",
            "]",
        ),
    ),
)

RELEASE = mutations_of(
    FOLDER,
    [
        "actions/test_set_rollout_state",
        "lib/rollout/steps/test_clock",
        "lib/rollout/steps/test_rollback",
    ],
    (
        "a rollout that is held gives its PoP back",
        "steps/set_rollout_state.py",
        "    if state in ENDED:\n        opened",
        "    if state in (*ENDED, 'held'):\n        opened",
    ),
    (
        "a rollout that has ended keeps its PoP",
        "steps/set_rollout_state.py",
        "    if state in ENDED:\n        opened",
        "    if False:\n        opened",
    ),
    (
        "a PoP is free while an action of the old owner may run",
        "lease.py",
        "context.claims.release(head.pop, self.claim, max(0.0, grace))",
        "context.claims.release(head.pop, self.claim, 0.0)",
    ),
)

REMINDED = (
    *mutations_of(
        FOLDER,
        ["lib/rollout/test_guard"],
        (
            "people are not reminded of a rollout that waits",
            "guard/__init__.py",
            '    ("rollout_stalled", waiting_rollout),\n',
            "",
        ),
        (
            "people are reminded of it each hour",
            "guard/stalled.py",
            " or (waited >= 2 * AN_HOUR and waited % DAY >= AN_HOUR)",
            "",
        ),
    ),
    *mutations_of(
        "lib/edgetune/campaign",
        ["lib/campaign/test_steps"],
        (
            "a ring that waits for an approval tells nobody",
            "advance.py",
            "            record.note(self._requested_by, what + more, self._owner)\n",
            "            pass\n",
        ),
        (
            "people are told that it waits at each step",
            "advance.py",
            "        if clock.wall() - max(told, default=0.0) >= DAY:\n",
            "        if True:\n",
        ),
        (
            "a campaign that is held is told once",
            "advance.py",
            " or reminds(record)]",
            "]",
        ),
    ),
)

LET_IN = mutations_of(
    FOLDER,
    ["lib/rollout/steps/test_let_in"],
    (
        "a host that is let in again and again is drained for ever",
        "steps/check_drained.py",
        "    if host.let_in >= CONTRADICTS and _is_overdue(opened, host):\n",
        "    if False:\n",
    ),
    (
        "a host is given up because a load balancer was reloaded",
        "steps/check_drained.py",
        "    if host.let_in >= CONTRADICTS and _is_overdue(opened, host):\n",
        "    if _is_overdue(opened, host):\n",
    ),
    (
        "a host that nothing keeps out is drained at a look that finds it out",
        "steps/check_drained.py",
        "        return _is_guarded(opened, host, server) or _goes_on(",
        "        return True or _goes_on(",
    ),
    (
        "sessions are dropped of a host that goes on getting more",
        "steps/check_drained.py",
        "    if opened.plan.options.drop_sessions and not contradicts:\n",
        "    if opened.plan.options.drop_sessions:\n",
    ),
    (
        "a host that does not obey is told as let in again",
        "steps/check_drained.py",
        "        host.let_in -= 1\n",
        "",
    ),
    (
        "one host that is let in again ends a rollback",
        "drain.py",
        '    if stuck and work.batch_type != "restore":\n',
        "    if stuck:\n",
    ),
    (
        "a host that was let in again is changed as soon as it is out",
        "drain.py",
        "name in busy or name in back]",
        "name in busy]",
    ),
    (
        "a host that does not tell its sessions carries none",
        "drain.py",
        "if answer.failed or answer.sessions]",
        "if answer.sessions]",
    ),
)

PACE = (
    *mutations_of(
        FOLDER,
        ["workflows/test_roll_batch"],
        (
            "hosts that boot wait for one that has to serve on",
            "floor.py",
            "    go_on = room > 0 or others_go_on(work, last)\n",
            "    go_on = room > 0\n",
        ),
        (
            "a host is restored while it boots",
            "order.py",
            '        return "wait_for_hosts"\n',
            '        return "restore_hosts"\n',
        ),
        (
            "hosts that were drained are not put back",
            "order.py",
            '    left = work.at("verified", "undraining", "quarantined")\n',
            "    left: list[str] = []\n",
        ),
        (
            "what lasts long is looked at every two seconds",
            "order.py",
            "min(max(waited / 4, least), most, config.owner_timeout / 3)",
            "min(least, config.owner_timeout / 3)",
        ),
    ),
    *mutations_of(
        FOLDER,
        ["lib/rollout/test_pace"],
        (
            "what a task costs is added to the interval",
            "steps/sample_hosts.py",
            "    left = interval - (now - head.created) % interval\n",
            "    left = interval\n",
        ),
        (
            "a soak without the samples of one look is begun",
            "steps/check_baseline.py",
            "    if apart <= _JITTER * options.interval or options.soak >= least:\n",
            "    if True:\n",
        ),
        (
            "a sample of ours passes for one of the rule",
            "steps/sample_hosts.py",
            "    return last is not None and 0 <= clock.wall() - last.time < interval\n",
            "    return True\n",
        ),
        (
            "who stays with a soak loses its claim",
            "steps/sample_hosts.py",
            "        opened.lease.renew()\n",
            "        pass\n",
        ),
    ),
    *mutations_of(
        FOLDER,
        ["lib/rollout/test_stores"],
        (
            "every guard looks",
            "guard/turns.py",
            "self._client.get(_TURN_KEY) == guard and self._client.expire",
            "self._client.expire",
        ),
        (
            "every guard tells people",
            "guard/turns.py",
            'self._client.set(_told_key(what), "1", nx=True, ex=AN_HOUR)',
            "pass",
        ),
    ),
)

STACKSTORM = (
    *mutations_of(
        FOLDER,
        ["lib/rollout/test_reasons"],
        (
            "a store that is away takes a rollout back",
            "steps/begin_rollback.py",
            "    if AWAY in reason:\n",
            "    if False:\n",
        ),
    ),
    *mutations_of(
        FOLDER,
        ["lib/rollout/test_stores"],
        (
            "a write that was not answered is made over what another one wrote",
            "store.py",
            "        if _digest(now) != before:\n",
            "        if False:\n",
        ),
    ),
    *mutations_of(
        FOLDER,
        ["actions/test_find_orphans"],
        (
            "a dead action is ended while its workflow would still roll back",
            "steps/find_orphans.py",
            "        if not holds and not _is_of_its_epoch(execution.parameters, heads):\n",
            "        if True:\n",
        ),
        (
            "a workflow with an action that works is taken for dead",
            "executions.py",
            "        return self._above(self.dead) - self._above(waited_for)\n",
            "        return self._above(self.dead)\n",
        ),
    ),
)

PERMITS = mutations_of(
    FOLDER,
    ["lib/rollout/steps/test_switch", "lib/rollout/test_lost_claims", "actions/test_drain_hosts"],
    (
        "a side effect is permitted while everything is stopped",
        "lease.py",
        "        self.renew()\n        refuse_if_stopped(self.record.context)\n",
        "        self.renew()\n",
    ),
    (
        "a side effect is permitted to an owner that was replaced",
        "lease.py",
        "        self.renew()\n        refuse_if_stopped(self.record.context)\n",
        "        refuse_if_stopped(self.record.context)\n",
    ),
)

RECOVERY = mutations_of(
    FOLDER,
    ["lib/rollout/test_orphans"],
    (
        "a rollout whose owner dies again and again is carried on",
        "steps/assess_orphan.py",
        "    if head.recoveries >= MOST_RECOVERIES:\n",
        "    if False:\n",
    ),
    (
        "a rollout in which a host failed is carried on",
        "steps/assess_orphan.py",
        "    if failed:\n",
        "    if False:\n",
    ),
)

OWNERS = mutations_of(
    FOLDER,
    [
        "lib/rollout/test_lost_claims",
        "lib/rollout/test_stores",
        "lib/rollout/test_records",
        "lib/rollout/steps/test_rollout",
        "lib/rollout/test_recovery",
    ],
    (
        "a state is entered from whichever epoch",
        "entering.py",
        "context.claims.take(head.pop, head.id, ttl, after=epoch, above=epoch).epoch",
        "context.claims.take(head.pop, head.id, ttl, above=epoch).epoch",
    ),
    (
        "take_over_rollout takes an epoch that hosts have seen",
        "steps/take_over_rollout.py",
        "        above=largest_epoch(context, head.pop),\n",
        "        above=0,\n",
    ),
    (
        "take_over_rollout takes a PoP with another rollout that is unfinished",
        "steps/take_over_rollout.py",
        "    refuse_unfinished(context, head.pop, but=head.id)\n",
        "",
    ),
    (
        "of two rollouts that begin at once both do",
        "steps/claim_pop.py",
        "        refuse_unfinished(context, pop.name)\n        if needs_approval:\n",
        "        if needs_approval:\n",
    ),
    (
        "a rollout is begun beside one that is unfinished",
        "steps/claim_pop.py",
        "    refuse_if_paused(context, pop.name)\n    refuse_unfinished(context, pop.name)\n",
        "    refuse_if_paused(context, pop.name)\n",
    ),
    (
        "another epoch's claim is renewed (SQLite)",
        "claims.py",
        "if held != claim and (held is not None or self._epoch(db, pop) != claim.epoch):",
        "if held is not None and held.rollout != claim.rollout:",
    ),
    (
        "another epoch's claim is renewed (Redis)",
        "claims.py",
        "if held.rollout ~= ARGV[1] or held.epoch ~= tonumber(ARGV[2]) then return {0, text} end",
        "if held.rollout ~= ARGV[1] then return {0, text} end",
    ),
    (
        "a claim is taken that another rollout holds (SQLite)",
        "claims.py",
        "            if held is not None and held.rollout != rollout:\n",
        "            if False:\n",
    ),
)

TRAFFIC = mutations_of(
    FOLDER,
    [
        "lib/rollout/steps/test_traffic",
        "lib/rollout/steps/test_rollout",
        "lib/rollout/steps/test_rollback",
    ],
    (
        "one host less than min_in_service may serve",
        "floor.py",
        "        if left >= opened.pop.must_serve or not needs_room(",
        "        if left >= opened.pop.must_serve - 1 or not needs_room(",
    ),
    (
        "a rollback drains one host more than there is room for",
        "floor.py",
        "hosts_in_service(opened.pop, servers)) - opened.pop.must_serve)\n",
        "hosts_in_service(opened.pop, servers)) - opened.pop.must_serve + 1)\n",
    ),
    (
        "what somebody else drains at the same moment is not seen",
        "floor.py",
        "    if left >= opened.pop.must_serve or not served:\n",
        "    if True:\n",
    ),
    (
        "sessions in the load balancer are not waited for",
        "steps/check_drained.py",
        "    if server.sessions == 0:\n",
        "    if True:\n",
    ),
    (
        "sessions that nobody counts are none",
        "steps/check_drained.py",
        "    if server.sessions == 0:\n",
        "    if not server.sessions:\n",
    ),
    (
        "a host that may still get requests is told not ready",
        "steps/check_drained.py",
        "    if server.leaving:\n",
        "    if False:\n",
    ),
    (
        "a host is drained before its isolation is in force",
        "steps/check_drained.py",
        "            if name not in still or _goes_on(",
        "            if True or _goes_on(",
    ),
    (
        "a host that the load balancer forgot is changed while it leaves",
        "drain.py",
        ", *leaving(opened.pop, driver.servers())}",
        "}",
    ),
    (
        "sessions on the host are not waited for",
        "steps/check_drained.py",
        "        if not answer.sessions or _goes_on(",
        "        if True or _goes_on(",
    ),
    (
        "a drain is written down after it",
        "steps/drain_hosts.py",
        '    opened.move(work, names, "draining")\n    keep_silenced(opened, work)\n',
        "    keep_silenced(opened, work)\n"
        "    for each in opened.hosts(names):\n"
        "        driver.withdraw(each.server)\n"
        '    opened.move(work, names, "draining")\n',
    ),
    (
        "a second run takes our own drain for what was before",
        "steps/drain_hosts.py",
        "host.lb_before = host.lb_before or state_of(",
        "host.lb_before = state_of(",
    ),
    (
        "a host that somebody had in maint is given traffic",
        "steps/undrain_hosts.py",
        "            put_back(driver, host.server, work.hosts[host.name].lb_before)\n",
        "            driver.restore(host.server)\n",
    ),
    (
        "a host is done before it serves again",
        "steps/undrain_hosts.py",
        "        if not missing or now - began",
        "        return {}\n        if not missing or now - began",
    ),
    (
        "a host that the load balancer forgot about is changed in service",
        "drain.py",
        "    forgotten = [host for host in ours if servers[host.server].is_let_in]\n",
        "    forgotten: list[Any] = []\n",
    ),
)

MACHINES = mutations_of(
    FOLDER,
    ["lib/rollout/test_identity", "lib/rollout/steps/test_identity"],
    (
        "the address that the load balancer has is any machine's",
        "identity.py",
        "    return _foreign(host, address, own) if by_interface and",
        "    return _foreign(host, address, own) if False and",
    ),
    (
        "another machine than that of the plan is changed",
        "identity.py",
        "    if known and uuid != known and not (way_back and not uuid):\n",
        "    if False:\n",
    ),
    (
        "no check has to fail once a host says not ready",
        "readiness.py",
        "    return server in servers and servers[server].fails_every_check\n",
        "    return True\n",
    ),
    (
        "a host is told without the address that it should have",
        "readiness.py",
        '"address": expected.get(host.name) or None}',
        '"address": None}',
    ),
    (
        "a host that says not ready is put back when another machine answers",
        "readiness.py",
        "for n in names if answers[n]",
        "for n in answers if answers[n]",
    ),
    (
        "the check of another server may fail instead",
        "readiness.py",
        "    if fell:\n",
        "    if False:\n",
    ),
)

VERIFIED = mutations_of(
    FOLDER,
    ["actions/test_verify_hosts", "lib/rollout/steps/test_rollback", "lib/rollout/test_looks"],
    (
        "a host that did not confirm is verified",
        "steps/verify_hosts.py",
        "    if told.confirmed:\n",
        "    if True:\n",
    ),
    (
        "a host that is not as before is verified",
        "steps/verify_hosts.py",
        "        if was is not None and not is_same(was, now.get(name))\n",
        "        if False\n",
    ),
    (
        "a changed host that is sick is promoted",
        "soak.py",
        "        return block, Newest(around.latest_gauges(), baseline.health)\n",
        "        return block, Newest({}, {})\n",
    ),
)

HOSTS = mutations_of(
    FOLDER,
    [
        "lib/rollout/steps/test_rollout",
        "lib/rollout/steps/test_traffic",
        "lib/rollout/test_recovery",
        "lib/rollout/steps/test_reset",
    ],
    (
        "apply does not see whether its hosts are still out",
        "steps/apply_tuning.py",
        "    names = keep_out(opened, work, names)\n    tuned, others",
        "    tuned, others",
    ),
    (
        "reboot does not see whether its hosts are still out",
        "steps/reboot_hosts.py",
        "    names = keep_out(opened, work, names)\n    refused",
        "    refused",
    ),
    (
        "the boot_id is written down after the reboot",
        "steps/reboot_hosts.py",
        '    opened.move(work, work.at("rebooting"), "rebooting")\n    sent',
        "    sent",
    ),
    (
        "a host that answers is back, whatever its boot_id",
        "restart.py",
        "answer.boot_id != work.hosts[answer.host].boot_before",
        "True",
    ),
    (
        "a host whose service does not answer is verified",
        "steps/verify_hosts.py",
        "        sick = sick_services(opened.context, opened.pop, opened.hosts(names))\n",
        "        sick: dict[str, str] = {}\n",
    ),
    (
        "a batch is checked against no limits",
        "steps/check_health.py",
        "    failed = beyond_limits(checked, now, before, changed)\n",
        "    failed: dict[str, str] = {}\n",
    ),
)

RESETS = mutations_of(
    FOLDER,
    [
        "lib/rollout/steps/test_reset",
        "lib/rollout/steps/test_bios",
        "lib/rollout/steps/test_kernels",
    ],
    (
        "a host that has just come back is reset once more",
        "restart.py",
        "        if answer.failed or is_back(work, answer):\n",
        "        if answer.failed:\n",
    ),
    (
        "a reset goes to whatever machine its BMC has",
        "restart.py",
        '            "machine": vars(answer.facts.machine),\n',
        "",
    ),
    (
        "a reset goes to another machine than the plan saw",
        "restart.py",
        '            "known": _known(opened, host.name),\n',
        "",
    ),
    (
        "a machine that is not proven to be the host may be reset",
        "planning.py",
        "ladder(told.resets, force) if _is_own(host, facts, told) else []",
        "ladder(told.resets, force)",
    ),
    (
        "a machine that was forced last is turned on",
        "restart.py",
        "    if ways[-1:] != [SHUTDOWN] or ON in host.refused:\n",
        "    if SHUTDOWN not in ways or ON in host.refused:\n",
    ),
    (
        "a machine that its BMC shut down stays off",
        "restart.py",
        "    off = [name for name in names if _was_shut_down(opened, work.hosts[name])]\n",
        "    off: list[str] = []\n",
    ),
    (
        "whoever takes over forgets what a BMC was asked for",
        "rollback.py",
        "        resets=host.resets if mid_reboot else [],\n",
        "",
    ),
    (
        "a reset that was refused is told as one that was asked for",
        "restart.py",
        "            work.hosts[name].resets.remove(ways[name])\n",
        "",
    ),
    (
        "a POST that a BMC tells for ever is believed for ever",
        "restart.py",
        "waited > _POST_BELIEVED * _patience(opened)",
        "False",
    ),
    (
        "a host that is silent for a moment is reset",
        "restart.py",
        "    early = [name for name in hopeful if waited[name] <= deadline]\n",
        "    early: list[str] = []\n",
    ),
    (
        "a silent host is reset whatever its rollout does",
        "restart.py",
        " and opened.plan.tries_a_boot(name)\n        for way",
        "\n        for way",
    ),
    (
        "a host is given up whose new kernel runs no agent",
        "restart.py",
        "        if answer.reason in _SILENT and ",
        '        if answer.reason == "unreachable" and ',
    ),
    (
        "a host that hangs is given up without a reset",
        "steps/check_rebooted.py",
        "    reset += rescue(opened, work, silent)\n",
        "",
    ),
    (
        "a silent host is told to be past POST",
        "restart.py",
        'lambda host: {"os_answers": False}',
        'lambda host: {"os_answers": True}',
    ),
    (
        "BMCs of hosts that only reboot are not compared with them",
        "planning.py",
        '    asked = others if tuning.disruption == "reboot" else []\n',
        "    asked: list[Host] = []\n",
    ),
)

BACK = mutations_of(
    FOLDER,
    [
        "lib/rollout/steps/test_rollback",
        "lib/rollout/steps/test_rollout",
        "lib/rollout/steps/test_quarantine",
        "lib/rollout/test_recovery",
    ],
    (
        "a rollback forgets hosts that are half way",
        "rollback.py",
        "            elif host.step not in UNTOUCHED_STEPS:\n",
        '            elif host.step == "done":\n',
    ),
    (
        "a rollback visits the hosts that are out of service last",
        "rollback.py",
        "    planned = len(opened.plan",
        "    groups = groups[1:] + groups[:1] if out else groups\n    planned = len(opened.plan",
    ),
    (
        "a rollback visits the healthiest first",
        "rollback.py",
        "usual.get(name)), reverse=True)",
        "usual.get(name)))",
    ),
    (
        "a rollback plans batches without min_in_service",
        "rollback.py",
        "    spare = max(1, in_service - opened.pop.must_serve)\n",
        "    spare = len(opened.pop.hosts)\n",
    ),
    (
        "a host that booted with the change is not rebooted without it",
        "rollback.py",
        "    return (asked and booted) or bool(earlier and earlier.reboot)\n",
        "    return bool(earlier and earlier.reboot)\n",
    ),
)

GUARD = mutations_of(
    f"{FOLDER}/guard",
    ["lib/rollout/test_guard", "lib/rounds/test_seen"],
    (
        "an outage of the whole PoP is what a tuning did",
        "degraded.py",
        "if _most_fail([",
        "if False and _most_fail([",
    ),
    (
        "a host that was ill before makes another one's bad sample the second",
        "degraded.py",
        "beyond_limits(found.keys() & previous, previous",
        "beyond_limits(previous.keys(), previous",
    ),
    (
        "a sample of a host that was out counts against it",
        "degraded.py",
        "for batch in changes if batch.checked for host",
        "for batch in changes for host",
    ),
    (
        "two late sweeps of all lose a host",
        "lost.py",
        "if sum(at > seen[host] for at in times) >= _MISSED",
        "if True",
    ),
    (
        "without a sample a surge is over",
        "surge.py",
        "if not _covers(recent, quiet) or surge_in",
        "if surge_in",
    ),
    (
        "a guard that fails keeps its turn",
        "__init__.py",
        "            if not is_whole:\n",
        "            if False:\n",
    ),
    (
        "what is being taken back right now is stuck",
        "rounds.py",
        "    soon = own.now - own.decisions.since <= LATE\n",
        "    soon = False\n",
    ),
)

ROLLOUT = (
    *(*PEOPLE, *PROMOTION, *WAITS, *REMINDED, *LET_IN, *RELEASE),
    *(*PERMITS, *PACE, *STACKSTORM, *RECOVERY, *OWNERS, *GUARD),
    *(*TRAFFIC, *MACHINES, *VERIFIED, *HOSTS, *RESETS, *BACK),
)
