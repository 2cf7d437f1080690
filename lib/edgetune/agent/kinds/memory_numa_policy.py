# SPDX-License-Identifier: Apache-2.0
"""On which NUMA nodes a service gets its memory."""

import re
from typing import Dict, List, Optional

from edgetune.agent.journal import Journal
from edgetune.agent.kinds import header
from edgetune.agent.kinds.service_property import ServiceProperty
from edgetune.agent.protocol import Failed, Unsupported
from edgetune.agent.topology import memory_nodes, named, refuse_nodes
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.memory_numa_policy import KIND, MASK, POLICY
from edgetune.agent.vocabulary.values import Target, Value

OLDEST = 243
"""The first systemd that knows both."""


class MemoryNumaPolicy(ServiceProperty):
    """The NUMA nodes on which a service gets the memory that it asks for after its restart.

    ``interleave`` (over all that have any), ``preferred:0``, ``bind:0-1``, ``local`` or
    ``default``.
    """

    kind = KIND
    drop_in = "90-edgetune-{rank}.numa.conf"

    def rounded(self, target: Target, value: Value) -> Value:
        """The nodes in their shortest form."""
        word, _, nodes = str(value).partition(":")
        return named(self.host, word, nodes)

    def probe(self, setting: Setting) -> None:
        """Unsupported with an old systemd, with one node only, and for nodes without memory."""
        if len(memory_nodes(self.host)) < 2:
            raise Unsupported("the host has memory on one NUMA node only")
        refuse_nodes(self.host, str(setting.value))
        try:
            version = self.host.run("systemctl", "--version")
        except Failed as error:
            raise Unsupported(str(error)) from None
        found = re.match("systemd ([0-9]+)", version)
        if not found or int(found.group(1)) < OLDEST:
            raise Unsupported(f"{POLICY} needs systemd {OLDEST} or newer")

    def probe_stored(self, setting: Setting, tuning: str) -> None:
        for name in (POLICY, MASK):
            self.refuse_overridden({**setting.target, "property": name}, tuning)

    def runtime(self, target: Target) -> Value:
        """What systemd starts it with."""
        word = self._show(target, POLICY)
        if word in ("n/a", "default", "local"):
            return "local" if word == "local" else "default"
        return named(self.host, word, self._show(target, MASK))

    def prove(self, setting: Setting) -> None:
        """Failed when the main process tells of another policy: it may choose one itself."""
        policy = self._of_process(setting.target)
        if policy and policy != self.rounded(setting.target, setting.value):
            raise Failed(f"the main process has {policy}")

    def _of_process(self, target: Target) -> Optional[str]:
        # The kernel walks all pages of the process for it, which meanwhile gets no new memory.
        maps = self.host.text(f"/proc/{self._show(target, 'MainPID')}/numa_maps")
        found = re.search(
            r"^\S+ (default|local|prefer|bind|interleave)(?::(\S+))? .*(?:heap|stack)", maps, re.M
        )
        if found is None:
            return None
        word = "preferred" if found.group(1) == "prefer" else found.group(1)
        return named(self.host, word, found.group(2) or "")

    def persistent(self, target: Target) -> Optional[Value]:
        policy, mask = (self._winner({**target, "property": name}) for name in (POLICY, MASK))
        return named(self.host, policy[1], mask[1] if mask else "") if policy else None

    def files(self, journal: Journal, settings: List[Setting]) -> Dict[str, str]:
        """Several assignments of a mask add up, unless an empty one comes between."""
        content = {}
        for setting in settings:
            word, _, nodes = str(setting.value).partition(":")
            lines = [f"{POLICY}={word}", f"{MASK}="]
            if word not in ("local", "default"):
                lines.append(f"{MASK}={nodes or 'all'}")
            text = header(journal) + "\n".join(["[Service]", *lines, ""])
            content[self._ours(setting.target, journal.rank)] = text
        return content
