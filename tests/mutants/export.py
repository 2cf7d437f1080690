# SPDX-License-Identifier: Apache-2.0
"""Mistakes by which an alert would not fire: what is not known passes for zero, or for well."""

from __future__ import annotations

from tests.mutants.mutation import mutations_of

EXPORT = (
    *mutations_of(
        "lib/edgetune/export",
        ["lib/export/test_export"],
        (
            "a PoP of which a record cannot be read has no hosts out",
            "under_way.py",
            "    unknown.update(damaged.values())\n",
            "",
        ),
        (
            "a PoP of which a batch cannot be read has no hosts out",
            "under_way.py",
            "{head.pop for head in seen.heads} - unknown:",
            "{head.pop for head in seen.heads}:",
        ),
        (
            "a rollout that cannot be read is not told",
            "under_way.py",
            '        values.put("edgetune_rollout_info", 1, pop, "", UNREADABLE, rollout)\n',
            "        pass\n",
        ),
        (
            "a key of a stranger is a PoP",
            "under_way.py",
            "for each in seen.damaged if each.pop}",
            "for each in seen.damaged}",
        ),
        (
            "a store that is away is a batch that cannot be read",
            "under_way.py",
            "    except StoreError:\n        raise\n",
            "",
        ),
        (
            "quarantined hosts that may serve are none",
            "under_way.py",
            "inside = len(in_service_still(head.quarantined))",
            "inside = 0",
        ),
        (
            "the host that is out for the shortest time is told",
            "values.py",
            "min([value, *self._of(name, labels)])",
            "max([value, *self._of(name, labels)])",
        ),
        (
            "an owner has made a step just now",
            "under_way.py",
            "seen.now - idle[pop]",
            "seen.now",
        ),
        (
            "a rollout without an owner has one",
            "under_way.py",
            "ownerless = not seen.stopped and is_orphaned(seen.context, head)",
            "ownerless = False",
        ),
        (
            "rollouts lose their owners while all is stopped",
            "under_way.py",
            "ownerless = not seen.stopped and is_orphaned(seen.context, head)",
            "ownerless = is_orphaned(seen.context, head)",
        ),
        (
            "a look that is due is that after the next one",
            "under_way.py",
            "due = soak.next_end if since is None else since",
            "due = soak.next_end",
        ),
        (
            "a batch that is planned hides where its hosts stand",
            "under_way.py",
            'if name not in found or host.step != "planned":',
            "if True:",
        ),
        (
            "a host that an earlier version took out was out since 1970",
            "under_way.py",
            'if host.step == "done" and host.out_at:',
            'if host.step == "done":',
        ),
        (
            "a state without a rollout has no series",
            "histories.py",
            'values.add("edgetune_rollouts", state == head.state, head.tuning, state)',
            'if state == head.state: values.add("edgetune_rollouts", 1, head.tuning, state)',
        ),
        (
            "a pause that was lifted lasts",
            "state.py",
            "pause.paused, pop, cause)",
            "1, pop, cause)",
        ),
        (
            "a damaged heartbeat ends the export",
            "state.py",
            "    with suppress(DamagedError):\n",
            "    with suppress():\n",
        ),
        (
            "a key that somebody made up is a label",
            "state.py",
            " if re.fullmatch(NAME, pop) else ()",
            "",
        ),
        (
            "a value has the labels of another family",
            "values.py",
            "if len(labels) != len(_FAMILIES[name].labels):",
            "if False:",
        ),
        (
            "the plan of a rollout that has ended is read",
            "under_way.py",
            "return Opened(head, record.begun_batches)",
            "return Opened(head, Present(record, seen.now).batches)",
        ),
    ),
    *mutations_of(
        "lib/edgetune/rollout",
        ["lib/export/test_export", "lib/rollout/test_stores"],
        (
            "a rollback of which a batch is lost is known",
            "record.py",
            "whole = len(restored) == self.head.restore_batches",
            "whole = True",
        ),
        (
            "a batch of a rollback that nobody began is one",
            "record.py",
            "restored = found[len(planned) :][: self.head.restore_batches]",
            "restored = found[len(planned) :][: max(1, self.head.restore_batches)]",
        ),
        (
            "a list of SQLite ends at the first letter with an accent",
            "store.py",
            "key < ? || CAST(x'ff' AS TEXT)",
            "key < ? || '~'",
        ),
    ),
    *mutations_of(
        "lib/edgetune",
        ["lib/rollout/test_step_times"],
        (
            "a step fails since what it took cannot be written",
            "rollout/step_times.py",
            "    with suppress(EdgetuneError):\n",
            "    if True:\n",
        ),
        (
            "a step waits for a store that hangs to count it",
            "rollout/step_times.py",
            "writing.join(PATIENCE)",
            "writing.join()",
        ),
        (
            "an owner of an earlier epoch counts its steps",
            "rollout/step_times.py",
            "            if epoch < kept.epoch:\n",
            "            if False:\n",
        ),
        (
            "a night's pause is a drain",
            "rollout/step_times.py",
            'return result.get("next") in ("drain_hosts", "restore_live")',
            "return False",
        ),
        (
            "the time until somebody took a rollout over is a reboot",
            "rollout/step_times.py",
            "kept.epoch, kept.awaited = epoch, {}",
            "kept.epoch = epoch",
        ),
        (
            "a clock that is set is time that a step took",
            "rollout/step_times.py",
            " - clock.shift_since(since)",
            "",
        ),
        (
            "a step that failed went well",
            "rollout/step_times.py",
            "            if own.failed:\n",
            "            if False:\n",
        ),
        (
            "an id that somebody made up makes a key",
            "rollout/step_times.py",
            "if not kept.steps and not has_record(context, rollout):",
            "if False:",
        ),
    ),
    *mutations_of(
        "lib/edgetune/export",
        ["lib/export/test_export"],
        (
            "the first failure of a step is no increase",
            "steps.py",
            '            values.add("edgetune_step_failures_total", 0, step, reason)\n',
            "            pass\n",
        ),
        (
            "words of a later version are labels without bound",
            "steps.py",
            "(step for step in STEPS if step in found.steps)",
            "found.steps",
        ),
    ),
    *mutations_of(
        "lab/serve",
        ["lab/test_serve_metrics"],
        (
            "a store that is away is a scrape of nothing",
            "metrics.py",
            'return 503, _PLAIN, f"{error}\\n"',
            'return 200, _PLAIN, ""',
        ),
        (
            "a port without an address is open to all",
            "metrics.py",
            "return host or _LOOPBACK, int(port)",
            'return host or "0.0.0.0", int(port)',
        ),
    ),
)
