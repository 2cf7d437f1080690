# SPDX-License-Identifier: Apache-2.0
"""Mistakes on a host."""

from __future__ import annotations

from tests.mutants.mutation import mutations_of

FOLDER = "lib/edgetune/hosts/agent"

AGENT = (
    *mutations_of(
        FOLDER,
        ["lib/hosts/agent/test_writers"],
        (
            "a file of the host that is replaced is as a new one",
            "host.py",
            "return there.for_other_bytes() if there else NEW_FILE",
            "return NEW_FILE",
        ),
        (
            "a file that is replaced loses its label and its access control list",
            "metadata.py",
            "            os.setxattr(descriptor, name, value)\n",
            "            pass\n",
        ),
        (
            "a file that is put back is as new as if somebody had changed it",
            "metadata.py",
            "    if wanted.mtime_ns is not None:\n",
            "    if False:\n",
        ),
        (
            "other bytes have the sum of those before",
            "metadata.py",
            "xattrs=_without(self.xattrs, (OF_BYTES,)), mtime_ns=None",
            "mtime_ns=None",
        ),
        (
            "a link becomes a file",
            "host.py",
            "            name = self.followed(name)\n        wanted",
            "            pass\n        wanted",
        ),
        (
            "a file is parted from its other names",
            "disk.py",
            " or found.st_nlink == 1:\n",
            " or found.st_nlink:\n",
        ),
        (
            "another user's link in a directory of root's is followed",
            "disk.py",
            "        if found.st_uid not in (0, os.geteuid()):\n            raise _shared(os",
            "        if False:\n            raise _shared(os",
        ),
        (
            "a directory has the mode that the umask leaves",
            "disk.py",
            "            os.fchmod(descriptor, mode)\n",
            "            pass\n",
        ),
        (
            "the command line of later kernels comes back as words alone",
            "boot_loaders/bls.py",
            "        elif not self._restored(KERNEL_COMMAND_LINE, state):\n",
            "        elif True:\n",
        ),
        (
            "custom.cfg forgets what it was before",
            "boot_loaders/grub.py",
            "        elif before is None or before.group(1) != _sum(others):\n",
            "        elif True:\n",
        ),
        (
            "a file with other names is found only after the boot",
            "boot_loaders/bls.py",
            "            self._refuse_unwritable(KERNEL_COMMAND_LINE)\n",
            "            pass\n",
        ),
    ),
    *mutations_of(
        FOLDER,
        [
            "lib/hosts/agent/test_agent",
            "lib/hosts/agent/test_requests",
            "lib/hosts/agent/test_races",
            "lib/hosts/agent/test_ready",
        ],
        (
            "an older epoch is obeyed",
            "host.py",
            "        if epoch < seen:\n",
            "        if False:\n",
        ),
        ("no epoch is remembered", "host.py", "        if epoch > seen:\n", "        if False:\n"),
        (
            "a damaged epoch is none",
            "host.py",
            '            raise Failed(f"{file} is damaged: {error}") from None\n',
            "            return 0\n",
        ),
        (
            "a reboot is done in whichever boot it arrives",
            "verbs/reboot.py",
            "meant = boot_id == now",
            "meant = True",
        ),
        (
            "a reboot that is asked for again is sent again",
            "verbs/reboot.py",
            "if meant and not _sent_just_now(host):",
            "if meant:",
        ),
        (
            "connections that are half closed are no sessions",
            "verbs/sessions.py",
            'OPEN_STATES = ("01", "04", "08")',
            'OPEN_STATES = ("01",)',
        ),
        (
            "a machine says not ready for another one",
            "verbs/ready.py",
            "    if address:\n",
            "    if False:\n",
        ),
        (
            "a host is never marked as not ready",
            "verbs/ready.py",
            "            _mark_not_ready(host, rollout)\n",
            "            pass\n",
        ),
        (
            "health checks over IPv6 loopback are sessions",
            "verbs/sessions.py",
            'LOOPBACK = ("0100007F", "00000000000000000000000001000000")',
            'LOOPBACK = ("0100007F",)',
        ),
    ),
    *mutations_of(
        FOLDER,
        [
            "lib/hosts/agent/test_agent",
            "lib/hosts/agent/test_faults",
            "lib/hosts/agent/test_undo",
            "lib/hosts/agent/test_races",
            "lib/hosts/agent/test_live",
            "lib/hosts/agent/test_kinds",
        ],
        (
            "a host is changed although it is not as the plan saw it",
            "verbs/apply.py",
            "    _refuse_unexpected(rows, expect)\n    try",
            "    try",
        ),
        (
            "a change that failed is not undone",
            "verbs/apply.py",
            "raise _undo(host, journal, error) from None",
            "raise Failed(str(error)) from None",
        ),
        (
            "a tuning is applied beside one that is half done",
            "verbs/apply.py",
            "    _refuse_unsettled(host)\n    rows",
            "    rows",
        ),
        (
            "the journal is written after the change",
            "change.py",
            "    journals.save(journal)\n"
            "    BootHook(host).sync()\n"
            "    if journal.provisional:\n"
            "        arm_timer(host, journal)\n"
            "    put_on(host, journal)\n",
            "    BootHook(host).sync()\n"
            "    if journal.provisional:\n"
            "        arm_timer(host, journal)\n"
            "    put_on(host, journal)\n"
            "    journals.save(journal)\n",
        ),
        (
            "no timer is armed for a change that may cut the host off",
            "change.py",
            "        arm_timer(host, journal)\n",
            "        pass\n",
        ),
        (
            "what was set is not read back",
            "change.py",
            "    if not handler.same(now, setting.value):\n",
            "    if False:\n",
        ),
        (
            "settings are put back in the order of their application",
            "restore.py",
            "for entry in reversed(in_order(entries))",
            "for entry in in_order(entries)",
        ),
        (
            "what was put back is not read back",
            "restore.py",
            "    if now != was and not handler.is_back(entry.setting.target, now, was):\n",
            "    if False:\n",
        ),
        (
            "the journal is forgotten although something could not be put back",
            "undo.py",
            "    if problems:\n"
            '        raise Failed("; ".join(unsaved + problems))\n'
            "    disarm_timer",
            "    disarm_timer",
        ),
        (
            "the change of another rollout is taken back",
            "verbs/restore.py",
            "ours = journal if journal and rollout in (None, journal.rollout) else None",
            "ours = journal",
        ),
        (
            "confirming and reverting do not exclude each other",
            "verbs/confirm.py",
            "    with host.lock():\n",
            "    if True:\n",
        ),
        (
            "a change is kept that does not verify",
            "verbs/confirm.py",
            " and result.verified\n",
            "\n",
        ),
        (
            "a change is kept that is being taken back",
            "verbs/confirm.py",
            "journal is not None and journal.state not in UNSETTLED and result",
            "journal is not None and result",
        ),
        (
            "a deadline holds in another boot",
            "revert_timer.py",
            "    if not deadline or deadline.boot_id != host.boot_id:\n",
            "    if not deadline:\n",
        ),
        (
            "the boot hook leaves what is half done",
            "boot_hook.py",
            "half_done = journal.provisional or journal.state in UNSETTLED",
            "half_done = journal.provisional",
        ),
    ),
    *mutations_of(
        FOLDER,
        ["lib/hosts/agent/test_connections"],
        (
            "a change that loses connections is kept",
            "verbs/apply.py",
            "        refuse_lost(host, journal)\n",
            "        pass\n",
        ),
        (
            "connections that are lost later are no matter",
            "verbs/verify.py",
            "running and not self.lost and all(",
            "running and all(",
        ),
        (
            "what is silent is taken for an answer",
            "connections.py",
            "                if not ready:\n                    break\n",
            "                if not ready:\n                    return []\n",
        ),
        (
            "a gateway that is gone is not asked",
            "reachable.py",
            "role != CLIENT or peer in clients",
            "peer in clients",
        ),
    ),
    *mutations_of(
        FOLDER,
        ["lib/hosts/agent/test_ethtool"],
        (
            "what ethtool told is believed after a change",
            "kinds/ethtool.py",
            "    finally:\n        _doubt(host, interface)\n",
            "    finally:\n        pass\n",
        ),
        (
            "what is proven is not read anew",
            "change.py",
            "    host.answers.clear()\n",
            "    pass\n",
        ),
        (
            "what another agent changed is not read anew",
            "host.py",
            "            self.answers.clear()\n",
            "            pass\n",
        ),
    ),
    *mutations_of(
        FOLDER,
        ["lib/hosts/agent/test_undo"],
        (
            "a compiled agent that is not whole is run",
            "kept_copy.py",
            "    if kept[:HEAD] == head(source, kept[HEAD:]):\n",
            "    if kept:\n",
        ),
        (
            "units are stopped that systemd does not know",
            "revert_timer.py",
            'if known.strip() == "LoadState=loaded":',
            "if True:",
        ),
    ),
    *mutations_of(
        FOLDER,
        ["lib/hosts/agent/test_cpus"],
        (
            "the network begins before the boot hook has set anything",
            "unattended.py",
            """    problems = boot(host)
    attempt(problems, "", let_go)
""",
            """    problems: List[str] = []
    attempt(problems, "", let_go)
    problems += boot(host)
""",
        ),
        (
            "the network waits for its own interfaces",
            "unattended.py",
            """    attempt(problems, "", let_go)
    if host.init == "systemd" and host.exists(FOLLOWING):
        attempt(problems, "", lambda: problems.extend(late(host)))
""",
            """    if host.init == "systemd" and host.exists(FOLLOWING):
        attempt(problems, "", lambda: problems.extend(late(host)))
    attempt(problems, "", let_go)
""",
        ),
        (
            "what needs its interface up is never set under systemd",
            "unattended.py",
            """    if host.init == "systemd" and host.exists(FOLLOWING):
""",
            "    if False:\n",
        ),
    ),
    *mutations_of(
        FOLDER,
        ["lib/hosts/agent/test_route"],
        (
            "the end of a boot waits for what a person took back meanwhile",
            "journal.py",
            "        if self._known is None or self._known[0] != stamp:\n",
            "        if self._known is None:\n",
        ),
        (
            "a route is asked for by a process each time",
            "kinds/route_metric.py",
            "listed = not table or _lists(table, target)",
            "listed = True",
        ),
        (
            "a route is changed as it stood before somebody moved it",
            "kinds/route_metric.py",
            """        self._doubt(target)
        for route in""",
            "        for route in",
        ),
        (
            "a route is put back as it stood before somebody moved it",
            "kinds/route_metric.py",
            """        self._doubt(target)
        for was in""",
            "        for was in",
        ),
        (
            "each look at a route is a process",
            "kinds/route_metric.py",
            '        if not known.get("routes"):\n',
            "        if True:\n",
        ),
        (
            "a route gets metrics that Linux never takes back",
            "kinds/route_metric.py",
            '            if route.option("nhid"):\n',
            "            if False:\n",
        ),
        (
            "a route whose network has the bits of a host is never there",
            "kinds/route_metric.py",
            "        for own in (given & mask, mask)\n",
            "        for own in (given, mask)\n",
        ),
    ),
    *mutations_of(
        FOLDER,
        ["lib/hosts/agent/test_netlink"],
        (
            "what the kernel does not tell is taken for nothing",
            "kinds/nic.py",
            "Counts(*told) if told and told[1] else self._read_text(interface)",
            "Counts(*told) if told else Counts({}, {})",
        ),
        (
            "a part of the kernel's answer is taken for the whole",
            "kinds/ethtool_netlink.py",
            " or at + size > len(attributes):",
            ":",
        ),
        (
            "a feature that is never changed can be changed",
            "kinds/ethtool_netlink.py",
            " - set(never)",
            "",
        ),
        (
            "what was asked of a card is taken for what is in force",
            "kinds/nic_features.py",
            "for part in (told.active, told.wanted)",
            "for part in (told.wanted, told.wanted)",
        ),
    ),
    *mutations_of(
        FOLDER,
        ["lib/hosts/agent/test_power"],
        (
            "a file is there before its content is on the disk",
            "disk.py",
            "        apply_metadata(descriptor, wanted)\n        os.fsync(descriptor)\n",
            "        apply_metadata(descriptor, wanted)\n",
        ),
        (
            "what was renamed is not on the disk when the next thing is done",
            "disk.py",
            "            raise\n        self.sync()\n",
            "            raise\n",
        ),
        (
            "a change begins before its journal is written",
            "change.py",
            "    journals.save(journal)\n    BootHook(host).sync()\n",
            "    BootHook(host).sync()\n",
        ),
    ),
    *mutations_of(
        "lib/edgetune/hosts",
        ["lib/hosts/test_many_connections"],
        (
            "a port that answers in part is taken for a whole one",
            "many_connections.py",
            "        if count\n",
            "        if count == CONNECTIONS\n",
        ),
        (
            "a host that no connection reaches is well",
            "many_connections.py",
            "    if not told:\n        return _lost_logins(login, host)\n",
            '    if not told:\n        return ""\n',
        ),
    ),
    *mutations_of(
        FOLDER,
        ["lib/hosts/agent/test_rss"],
        (
            "the driver's own table is written back after a change of the queues",
            "kinds/nic_rss.py",
            "super().restore_own(target, _chosen(parts(was)))",
            "super().restore_own(target, was)",
        ),
        (
            "a table that no tuning made is written back",
            "kinds/nic_rss.py",
            "        if not any(map(makes_table, Journals(",
            "        if False and not any(map(makes_table, Journals(",
        ),
        (
            "the driver's own table gives way",
            "kinds/nic_rss.py",
            '        if not (self.queues_chosen(target) or "indirection table" in complaint):\n',
            "        if False:\n",
        ),
        (
            "queues change under a table that does not follow them",
            "kinds/nic_channels.py",
            "        if NicRss(self.host).is_of_virtio(setting.target):\n",
            "        if False:\n",
        ),
        (
            "a stale table is told to the device",
            "kinds/nic_rss.py",
            "            if channels.current != channels.max:\n",
            "            if False:\n",
        ),
    ),
    *mutations_of(
        FOLDER,
        ["lib/hosts/agent/test_interrupts"],
        (
            "interrupts that count from 1 lose the last queue",
            "interrupt_names.py",
            "        first[side] = int(0 not in numbers and count in numbers)\n",
            "        first[side] = 0\n",
        ),
        (
            "interrupts of another port of the card are those of this one",
            "interrupt_names.py",
            "if not any(is_named_after(other, name) for other in siblings)",
            "if True",
        ),
        (
            "names that are cut off pass for one interrupt",
            "interrupt_names.py",
            "        if form and own.count(name) == 1:\n",
            "        if form:\n",
        ),
        (
            "an interrupt of several queues is of the first alone",
            "placement.py",
            "        for queue in own.queues:\n",
            "        for queue in own.queues[:1]:\n",
        ),
        (
            "queues without a known interrupt are left out in silence",
            "interrupts.py",
            "        if not (self.names.unknown and self.names.missing):\n",
            "        if True:\n",
        ),
        (
            "a bridge above a card lends it its interrupts",
            "interrupts.py",
            "{'../' if virtio else ''}msi_irqs",
            "../msi_irqs",
        ),
        (
            "a line that other devices share is moved",
            "interrupts.py",
            " if not line.shared]",
            "]",
        ),
        (
            "a card whose interrupts nobody knows is no card to keep off",
            "kinds/cpu_service_affinity.py",
            "        if any(interrupts_of(host, interface).names[:2]):\n",
            "        if interrupts_of(host, interface).queues:\n",
        ),
        (
            "interrupts that are known no more are not put back",
            "kinds/nic_irq_affinity.py",
            "return all_interrupts(self.host, interface_of(target))",
            "return find_interrupts(self.host, interface_of(target))",
        ),
    ),
    *mutations_of(
        FOLDER,
        ["lib/vocabulary/test_kinds", "lib/hosts/agent/test_stack"],
        (
            "a file of a card is nothing of its interface",
            "touched.py",
            '    return {real, *(f"interface {name}" for name in owners)}\n',
            "    return {real}\n",
        ),
        (
            "links lead to other things than what they name",
            "touched.py",
            "    real = os.path.realpath(host.path(path))\n",
            "    real = host.path(path)\n",
        ),
    ),
    *mutations_of(
        FOLDER,
        ["lib/hosts/agent/test_sysctl"],
        (
            "a parameter is put back after what it is copied to",
            "kinds/sysctl.py",
            "(_is_zero(file, was[file]), file != own)",
            "_is_zero(file, was[file])",
        ),
        (
            "a value of somebody else is taken back",
            "kinds/sysctl.py",
            "            if now[file] != now.get(copied, now[file]):\n",
            "            if False:\n",
        ),
        (
            "a file alone keeps what comes with a module",
            "kinds/sysctl.py",
            "        if self.kept_by_hook(target) and not self._is_set_late(target):\n",
            "        if False:\n",
        ),
        (
            "a line that takes a parameter out does not count",
            "kinds/sysctl_files.py",
            "(equals or excluded)",
            "equals",
        ),
    ),
    *mutations_of(
        "lib/edgetune/vocabulary",
        ["lib/vocabulary/test_kinds", "lib/rollout/steps/test_reverts"],
        (
            "a coupled parameter is not touched",
            "kinds/sysctl.py",
            "dict.fromkeys([path, *_changed_with(path)])",
            "[path]",
        ),
        (
            "no route can cut a host off",
            "kind.py",
            're.compile(f"(interface|route|module) |',
            're.compile(f"(interface|module) |',
        ),
    ),
)

LEAVING = (
    *mutations_of(
        FOLDER,
        ["lib/hosts/agent/test_uninstall", "lib/hosts/agent/test_hand_over"],
        (
            "an agent is removed while a tuning stands",
            "verbs/uninstall.py",
            "            if tunings:\n",
            "            if False:\n",
        ),
        (
            "an agent is removed whose tuning has a journal that cannot be read",
            "verbs/uninstall.py",
            ", *journals.damaged()])",
            "])",
        ),
        (
            "an agent is removed from a host that a rollout holds",
            "verbs/uninstall.py",
            "    if not host.ready:\n",
            "    if False:\n",
        ),
        (
            "an older epoch removes an agent",
            "verbs/uninstall.py",
            "            if epoch < host.epoch():\n",
            "            if False:\n",
        ),
        (
            "a removed agent leaves directories that it made",
            "verbs/uninstall.py",
            "    Directories(host).prune()\n",
            "",
        ),
        (
            "a dry run removes an agent",
            "verbs/uninstall.py",
            "        if not dry_run:\n            if epoch",
            "        if True:\n            if epoch",
        ),
        (
            "a removed agent leaves what it remembered of a flag",
            "verbs/uninstall.py",
            ", BIRD_NOTE, FLAG_NOTE),",
            ", BIRD_NOTE),",
        ),
        (
            "a removed agent leaves the list of directories that others need by now",
            "verbs/uninstall.py",
            "    host.remove(Directories.FILE)\n",
            "",
        ),
        (
            "two change a host at once where a third removed the lock",
            "host.py",
            "            while not self._is_lock(descriptor):\n",
            "            while False:\n",
        ),
    ),
    *mutations_of(
        FOLDER,
        ["lib/hosts/agent/test_hand_over"],
        (
            "what the boot hook alone keeps is handed over",
            "hand_over.py",
            "        if _by_hook_alone(host, entry):\n            yield",
            "        if False:\n            yield",
        ),
        (
            "a tuning that does not stand is handed over",
            "hand_over.py",
            '        yield f"{row.setting.id} {row.reason}"\n    for other in others:',
            "        pass\n    for other in others:",
        ),
        (
            "nobody asks what a boot would make of the new files",
            "hand_over.py",
            "            if not alike(now, left):\n",
            "            if False:\n",
        ),
        (
            "a file of a person is overwritten",
            "hand_over.py",
            "    if host.exists(new) and new not in journal.files:\n",
            "    if False:\n",
        ),
        (
            "a tuning is handed over from under the one it stands on",
            "hand_over.py",
            "    for other in below:\n",
            "    for other in []:\n",
        ),
        (
            "a file of update-grub in between is not seen",
            "hand_over.py",
            'if old.endswith(".cfg") else []:',
            "if False else []:",
        ),
        (
            "a journal does not know of the new files",
            "hand_over.py",
            "    journal.files = {**new, **journal.files}\n",
            "",
        ),
        (
            "the old files go before the new ones are there",
            "hand_over.py",
            "    try:\n        for name, own in files.items():\n",
            "    try:\n        for name in files:\n            host.remove(name)\n"
            "        for name, own in files.items():\n",
        ),
        (
            "a file that is handed over says that it is ours",
            "hand_over.py",
            "without_header(decode(host.read(name)))",
            "decode(host.read(name))",
        ),
        (
            "a snippet of GRUB that is handed over says that it is ours",
            "boot_loaders/grub.py",
            "            text = text.replace(mark, plain)\n",
            "            pass\n",
        ),
        (
            "nobody looks whether it holds without our files",
            "hand_over.py",
            "        _refuse_lost(host, journal)\n    except",
            "    except",
        ),
        (
            "the tuning of another rollout is handed over",
            "verbs/hand_over.py",
            "        if (journal.rollout, journal.digest) != (rollout, digest):\n",
            "        if False:\n",
        ),
        (
            "a host that a rollout holds is handed over",
            "verbs/hand_over.py",
            "        if not host.ready:\n",
            "        if False:\n",
        ),
        (
            "a dry run hands over",
            "verbs/hand_over.py",
            "        if not dry_run:\n            hand_over(",
            "        if True:\n            hand_over(",
        ),
        (
            "an older epoch hands over",
            "verbs/hand_over.py",
            "            host.fence(epoch)\n",
            "            pass\n",
        ),
    ),
    *mutations_of(
        "lib/edgetune/vocabulary",
        ["lib/hosts/agent/test_hand_over"],
        (
            "what is handed over is read after the files of a tuning",
            "places.py",
            'HANDED_OVER = "89-"',
            'HANDED_OVER = "91-"',
        ),
    ),
    *mutations_of(
        "lib/edgetune/rollout/steps",
        ["actions/test_hand_over_tuning"],
        (
            "one host that refuses keeps only itself from being handed over",
            "hand_over_tuning.py",
            "    if refused:\n",
            "    if False:\n",
        ),
        (
            "the record does not say first what is handed over",
            "hand_over_tuning.py",
            "    opened.save()\n    answers = ask_hosts(\n",
            "    answers = ask_hosts(\n",
        ),
        (
            "what only some hosts did is handed over",
            "hand_over_tuning.py",
            "    if left:\n        opened.head.note",
            "    if False:\n        opened.head.note",
        ),
        (
            "what stands on a host no more is taken for handed over",
            "hand_over_tuning.py",
            'if own and not own.found and (head.state == "complete" or own.wrong):',
            "if False:",
        ),
        (
            "a PoP is handed over while it is paused",
            "hand_over_tuning.py",
            "    refuse_if_paused(context, pop)\n",
            "",
        ),
        (
            "a tuning is handed over in a freeze",
            "hand_over_tuning.py",
            "    found = [why_frozen(record.context, head)]\n",
            "    found: list[str] = []\n",
        ),
        (
            "only a rollout without a campaign is handed over in a freeze",
            "hand_over_tuning.py",
            "    found = [why_frozen(record.context, head)]\n",
            '    found = [why_frozen(record.context, head) if head.freezes else ""]\n',
        ),
        (
            "a rollout with quarantined hosts is handed over",
            "hand_over_tuning.py",
            "    if head.quarantined:\n",
            "    if False:\n",
        ),
        (
            "what was handed over passes for taken back",
            "take_over_for_rollback.py",
            "    if handed_over_text(head):\n",
            "    if False:\n",
        ),
        (
            "any action may say that a rollout was handed over",
            "set_rollout_state.py",
            '"rolling_back", "handing_over", "handed_over")',
            '"rolling_back")',
        ),
    ),
    *mutations_of(
        "lib/edgetune/rollout/steps",
        ["actions/test_remove_agents", "actions/test_retire_tuning"],
        (
            "a tuning that only the records know does not stand",
            "remove_agents.py",
            '[applied["message"]] if applied["rollouts"]',
            '[applied["message"]] if False',
        ),
        (
            "no name of a tuning is all of them",
            "list_applied.py",
            "    if bool(tuning) == every:\n",
            "    if tuning and every:\n",
        ),
        (
            "a host that refuses keeps only itself",
            "remove_agents.py",
            "    if held:\n",
            "    if False:\n",
        ),
        (
            "agents are removed while a rollout is under way",
            "remove_agents.py",
            "    refuse_unfinished(context, pop)\n    _refuse_congestion",
            "    _refuse_congestion",
        ),
        (
            "a host that is away is taken for done",
            "remove_agents.py",
            "    failed = {name: str(own.error) for name, own in told.items() if own.failed}\n",
            "    failed: dict[str, str] = {}\n",
        ),
    ),
)
