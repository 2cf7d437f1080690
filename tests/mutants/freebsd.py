# SPDX-License-Identifier: Apache-2.0
"""Mistakes on hosts with FreeBSD, and with hosts of two systems."""

from __future__ import annotations

from tests.mutants.mutation import mutations_of

FREEBSD = (
    *mutations_of(
        "lib/edgetune/hosts/agent",
        ["lib_agent_freebsd"],
        (
            "a boot that nothing proves has an empty boot_id",
            "host.py",
            'raise Failed("sysctl -n -x',
            'return ""  # ',
        ),
        (
            "what lasts for a boot is kept where FreeBSD keeps it over boots",
            "host.py",
            '        return f"/var{name}" if here else name\n',
            "        return name\n",
        ),
        (
            "a file system that cannot allocate keeps no room",
            "host.py",
            "            os.write(descriptor, os.urandom(room))\n",
            "",
        ),
        (
            "a kind of another system is carried out",
            "kinds/__init__.py",
            "        if why:\n",
            "        if False:\n",
        ),
        (
            "no table of connections is none open",
            "freebsd/network.py",
            '    if not lines or not lines[0].startswith("Active Internet connections"):\n',
            "    if False:\n",
        ),
        (
            "connections from the host itself are sessions",
            "freebsd/network.py",
            " and _address_of(remote) not in LOOPBACK",
            "",
        ),
        (
            "an interface without a carrier is up",
            "freebsd/network.py",
            "is_up and carries, rate, told",
            "is_up, rate, told",
        ),
        (
            "a parameter that only a boot sets is set",
            "kinds/freebsd/sysctl.py",
            "        if is_writable(self.host, name):\n            return\n",
            "        return\n",
        ),
        (
            "a file that is read after the boot hook is not looked at",
            "kinds/freebsd/sysctl.py",
            "        if said and said[1] != setting.value:\n",
            "        if False:\n",
        ),
        (
            "a stack that the kernel does not have is tried",
            "kinds/freebsd/tcp_stack.py",
            "        if setting.value not in known and not comes:\n",
            "        if False:\n",
        ),
        (
            "a module that cannot be unloaded counts as taken back",
            "kinds/freebsd/module.py",
            "            if IN_USE not in str(why).lower():\n                raise\n",
            "            pass\n",
        ),
        (
            "a boot environment is the default before its confirmation",
            "kinds/freebsd/kernel_boot_environment.py",
            "        activate_once(self.host, str(value))\n",
            "        activate(self.host, str(value))\n",
        ),
        (
            "a boot environment that knows nothing of us is tried",
            "kinds/freebsd/kernel_boot_environment.py",
            "        if own == root:\n",
            "        if False:\n",
        ),
        (
            "a new boot environment has no boot hook",
            "kinds/freebsd/kernel_boot_environment.py",
            "        self._give_hook(str(value))\n",
            "",
        ),
        (
            "a boot that somebody else chose is taken away",
            "kinds/freebsd/kernel_boot_environment.py",
            '        if known.once not in ("", setting.value):\n',
            "        if False:\n",
        ),
        (
            "a restore leaves the boot environment that was tried",
            "kinds/freebsd/kernel_boot_environment.py",
            "        if known.once:\n            forget_once(self.host)\n",
            "",
        ),
        (
            "flags of boot environments are taken as they come",
            "freebsd/boot_environments.py",
            "    if len(found) > 1:\n",
            "    if False:\n",
        ),
        (
            "a tunable is set although another file decides",
            "kinds/freebsd/loader_tunable.py",
            "            if file not in (FIRST, ours) and value != setting.value:\n",
            "            if False:\n",
        ),
        (
            "a tunable is in force once the loader was told",
            "kinds/freebsd/loader_tunable.py",
            "        known = is_there(self.host, name)\n",
            "        known = False\n",
        ),
        (
            "a boot environment is mounted where others than root can change it",
            "freebsd/boot_environments.py",
            'host.run("bectl", "mount", name, PLACE)',
            'host.run("bectl", "mount", name)',
        ),
        (
            "packets that were sent again count twice",
            "freebsd/counters.py",
            '"tcp_segments_out": sent - again',
            '"tcp_segments_out": sent',
        ),
        (
            "a rounded counter counts",
            "freebsd/counters.py",
            "    if not all(type(own) is int for own in (sent, again, full)) or again > sent:\n",
            "    if again > sent:\n",
        ),
        (
            "columns are taken by their places",
            "freebsd/counters.py",
            "    if head.split()[-len(COLUMNS) :] != list(COLUMNS):\n",
            "    if not head:\n",
        ),
        (
            "tunnels count twice",
            "freebsd/counters.py",
            " and not _is_made_up(line)",
            "",
        ),
        (
            "ticks are milliseconds",
            "freebsd/counters.py",
            "(total - idle) * 1000 // hertz",
            "total - idle",
        ),
        (
            "a verb of Linux alone runs on FreeBSD",
            "dispatch.py",
            '    if verb in OF_LINUX and system != "linux":\n',
            "    if False:\n",
        ),
        (
            "what is below a node of parameters passes for its value",
            "freebsd/parameters.py",
            "    if status != 0 or told != name:\n",
            "    if status != 0:\n",
        ),
        (
            "what a shell would carry out is a property of a service",
            "kinds/freebsd/service_property.py",
            "        if not re.fullmatch(_TAKEN[name], value):\n",
            "        if False:\n",
        ),
        (
            "other limits of a service are lost",
            "kinds/freebsd/service_property.py",
            'if name_of(setting.target) == "LimitNOFILE" and not _LIMITS.fullmatch(text):',
            "if False:",
        ),
        (
            "a file of rc that is read after ours is not looked at",
            "kinds/freebsd/service_property.py",
            "        if files and files[-1] > ours and files[-1] not in FIRST:\n",
            "        if False:\n",
        ),
        (
            "the boot hook runs after the network",
            "boot_hook.py",
            "# BEFORE: netif\n",
            "",
        ),
        (
            "the boot hook waits for the revert timers",
            "boot_hook.py",
            "timeout --foreground",
            "timeout",
        ),
    ),
    *mutations_of(
        "lib/edgetune",
        ["rollout_systems_steps"],
        (
            "hosts of two systems are compared where a PoP is small",
            "groups.py",
            "    return _drawn(pop, touched, options, systems)\n",
            "    return _drawn(pop, touched, options)\n",
        ),
        (
            "a tuning of another system is planned",
            "rendering.py",
            "    if foreign:\n        return foreign\n",
            "",
        ),
        (
            "a doctor that cannot ask hosts tells nothing else either",
            "rollout/steps/doctor_pop.py",
            "    with suppress(EdgetuneError):\n        return any(",
            "    if True:\n        return any(",
        ),
        (
            "nobody is told that a system is experimental",
            "rollout/preflight.py",
            "    check_systems,\n    check_permission,\n",
            "    check_permission,\n",
        ),
        (
            "nobody is told that one verdict is of two systems",
            "rollout/planning.py",
            "    if len(own) < 2:\n",
            "    if True:\n",
        ),
        (
            "what two systems count alike is told as counted in other ways",
            "rollout/planning.py",
            'entry.get("freebsd", ALIKE) != ALIKE',
            '"freebsd" in entry',
        ),
    ),
    *mutations_of(
        "lib/edgetune/hosts/agent/freebsd",
        ["lib_agent_freebsd_recorded"],
        (
            "a line of a parameter that has several passes for another one",
            "parameters.py",
            " if name in names}",
            "}",
        ),
        (
            "a table of interfaces without its last column is counted",
            "counters.py",
            "    if head.split()[-len(COLUMNS) :] != list(COLUMNS):\n",
            "    if False:\n",
        ),
    ),
    *mutations_of(
        "lab/simulated",
        ["lab_freebsd"],
        (
            "a simulated host with FreeBSD boots without our hook",
            "freebsd/host.py",
            "    if not script.exists():\n",
            "    if True:\n",
        ),
    ),
)
