# SPDX-License-Identifier: Apache-2.0
"""Mistakes with kernels: each would leave a host on one that nobody proved, or without any."""

from __future__ import annotations

from tests.mutants.mutation import mutations_of

KERNELS = (
    *mutations_of(
        "lib/edgetune/hosts/agent",
        [
            "lib/hosts/agent/test_kernels",
            "lib/hosts/agent/test_boot_loader_contract",
            "lib/hosts/agent/test_grub",
        ],
        (
            "a kernel is the default before its confirmation",
            "kinds/tried_by_boot.py",
            "        self.loader.boot_once(base, for_first_boot(words))\n",
            "        self.loader.boot_once(base, for_first_boot(words))\n"
            "        self.loader.set_default(base.id)\n",
        ),
        (
            "a first boot that panics stays so",
            "kinds/tried_by_boot.py",
            "for_first_boot(words)",
            "words",
        ),
        (
            "a host that fell back waits for its confirmation",
            "unattended.py",
            "    if journal.grace_boots == 0 or _fell_back(host, journal):\n",
            "    if journal.grace_boots == 0:\n",
        ),
        (
            "a kernel that was taken back runs on",
            "unattended.py",
            "    if runs_another(host, journal):\n",
            "    if False:\n",
        ),
        (
            "a kernel is confirmed before it runs",
            "observe.py",
            "        return self.tried_by_boot and not (self.problem or self.runtime_differs)\n",
            "        return self.tried_by_boot and not self.problem\n",
        ),
        (
            "a confirmation keeps no kernel",
            "verbs/confirm.py",
            "            commit(host, journal)\n",
            "",
        ),
        (
            "a kernel is kept although other tunings do not stand on it",
            "verbs/confirm.py",
            "            _refuse_drift(host, journal)\n",
            "",
        ),
        (
            "a kernel is tried that nobody has to confirm",
            "verbs/apply.py",
            "    if not (head.confirm_within and head.grace_boots):\n",
            "    if False:\n",
        ),
        (
            "the kernel that runs is overwritten",
            "kinds/kernel_package.py",
            "        if release in kept:\n",
            "        if False:\n",
        ),
        (
            "a kernel is installed into a full /boot",
            "kinds/kernel_package.py",
            "        if free < needed:\n",
            "        if False:\n",
        ),
        (
            "the files of a kernel take no room",
            "kinds/kernel_package.py",
            "int(sum(taken.values()) * ROOM)",
            "0",
        ),
        (
            "what systemd-boot copies takes no room",
            "kinds/kernel_package.py",
            "taken.get(loader.place, []) + booted\n",
            "taken.get(loader.place, [])\n",
        ),
        (
            "a partition of systemd-boot is taken for /boot",
            "boot_loaders/systemd_boot.py",
            '        self.place = next(own, "/boot")\n        self.directory = f"{self.place}/',
            '        self.directory = f"{next(own, self.place)}/',
        ),
        (
            "the files of a kernel that are not found take no room",
            "boot_loaders/base.py",
            "        raise Unsupported("
            'f"the boot menu names {named}, which is not in {self.place}")\n',
            '        return "/dev/null"\n',
        ),
        (
            "an initramfs takes no room",
            "boot_loaders/grub.py",
            "        return [entry.image, *entry.initrds]\n",
            "        return [entry.image]\n",
        ),
        (
            "a kernel without a signature is tried where Secure Boot is on",
            "kinds/kernel_package.py",
            "        if secure_boot(self.host) and ",
            "        if False and ",
        ),
        (
            "the newest kernel passes for the default",
            "boot_loaders/grub.py",
            "entry.id == TRIAL or bool(release) and release in entry.id",
            "True",
        ),
        (
            "a kernel inside a submenu is the default by its bare title",
            "boot_loaders/grub_menu.py",
            "            named = False\n",
            "",
        ),
        (
            "the first entry of a submenu passes for the one that was named",
            "boot_loaders/grub.py",
            "        if entry and named and _stays(entry)",
            "        if entry and _stays(entry)",
        ),
        (
            "a number at the beginning of a name is overlooked",
            "boot_loaders/grub_menu.py",
            '        number = _number(here or "")\n',
            '        number = int(here) if (here or "").isdigit() else None\n',
        ),
        (
            "a default that was saved by titles is saved by another name",
            "kinds/kernel_package.py",
            'self.loader.set_default(was.get("stored", default))',
            "self.loader.set_default(default)",
        ),
        (
            "GRUB can write on LVM",
            "boot_loaders/grub_env.py",
            '            if self._host.exists(f"{whole}/{name}") or ',
            "            if False and ",
        ),
        (
            "GRUB can write on a partition of a RAID",
            "boot_loaders/grub_env.py",
            'f"{device}/.." if self._host.exists(f"{device}/partition") else device',
            "device",
        ),
        (
            "GRUB can write on any file system",
            "boot_loaders/grub_env.py",
            "        if kind not in WRITABLE:\n",
            "        if False:\n",
        ),
        (
            "what is in custom.cfg is lost",
            "boot_loaders/grub.py",
            "        text = others + BEGIN",
            "        text = BEGIN",
        ),
        (
            "a file stands for a menu that update-grub could not make",
            "boot_loaders/grub.py",
            "        self.host.write(file, data + DUE)\n",
            "        self.host.write(file, data) if data else self.host.remove(file)\n",
        ),
        (
            "a newer kernel keeps our words as it is taken back",
            "boot_loaders/bls.py",
            "            elif entry.id == default:\n",
            "            elif False:\n",
        ),
        (
            "a newer kernel loses the words of others",
            "boot_loaders/bls.py",
            "            own = with_words(entry.words, parameter, words)\n",
            "            own = list(words)\n",
        ),
        (
            "a host tries a kernel while another one than its default runs",
            "kinds/tried_by_boot.py",
            " and not self._is_under_way():\n",
            " and False:\n",
        ),
        (
            "a trial cannot be verified before its kernel is the default",
            "kinds/tried_by_boot.py",
            " and not self._is_under_way():\n",
            ":\n",
        ),
        (
            "any tuning that nobody confirmed yet is taken for a trial",
            "kinds/tried_by_boot.py",
            "            and any(_is_tried(entry.setting) for entry in journal.entries)\n",
            "",
        ),
        (
            "a kernel is tried though the one that runs was replaced on the disk",
            "kinds/kernel_package.py",
            "        self._refuse_replaced()\n",
            "",
        ),
        (
            "what a disk has passes for what runs",
            "kinds/kernel_package.py",
            "self.packages.running_version() or package.version",
            "package.version",
        ),
        (
            "dnf removes the oldest kernel",
            "package_managers/rpm.py",
            '"--setopt=installonly_limit=0", ',
            "",
        ),
        (
            "a diversion passes for the package of a kernel",
            "package_managers/dpkg.py",
            "        if diversion:\n",
            "        if False:\n",
        ),
        (
            "who diverts the file of a kernel passes for who has its modules",
            "package_managers/dpkg.py",
            "    return sorted(names, key=lambda name: name in diverters)\n",
            "    return names\n",
        ),
        (
            "apt removes what is in its way",
            "package_managers/dpkg.py",
            '"--no-remove", ',
            "",
        ),
        (
            "a kernel that rpm makes the default is installed",
            "boot_loaders/grub_bls.py",
            '        if found[-1:] != ["no"]:\n',
            "        if False:\n",
        ),
    ),
    *mutations_of(
        "lib/edgetune/rollout",
        ["lib/rollout/steps/test_kernels"],
        (
            "a kernel is the default before the service answers",
            "steps/verify_hosts.py",
            "        tried = [name for name in tuned if opened.plan.tries_a_boot(name)]\n",
            "        tried: list[str] = []\n",
        ),
        (
            "a host that will not keep its kernel stays ready",
            "steps/verify_hosts.py",
            "for name in left if work.hosts[name].lb_before], ready=False)",
            "for name in left if False], ready=False)",
        ),
        (
            "a rollback does not wait for the boot of the old kernel",
            "reverts.py",
            " + (opened.context.config.reboot_deadline if opened.plan.tries_boots else 0)\n",
            "\n",
        ),
    ),
    *mutations_of(
        "lib/edgetune",
        ["lib/rollout/steps/test_kernels"],
        (
            "hosts with different kernels are compared",
            "groups.py",
            "_drawn(pop, touched, options, systems, kernels)",
            "_drawn(pop, touched, options, systems)",
        ),
        (
            "a plan has a watchdog end every hang",
            "report/text.py",
            "    by_person = [name for name in tried if name not in forced]\n",
            "    by_person: list[str] = []\n",
        ),
    ),
    *mutations_of(
        "lib/edgetune/vocabulary",
        ["lib/hosts/agent/test_connections", "lib/rollout/steps/test_kernels"],
        (
            "another kernel is kept though connections are lost",
            "kind.py",
            "|{BOOT_ENTRY}$|",
            "|",
        ),
    ),
)
