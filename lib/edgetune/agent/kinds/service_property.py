# SPDX-License-Identifier: Apache-2.0
"""Properties of services."""

import contextlib
import re
from typing import Dict, List, Optional, Tuple

from edgetune.agent.journal import Journal
from edgetune.agent.kinds import FileKept, drop_ins, header, later
from edgetune.agent.protocol import Failed, Unsupported
from edgetune.agent.vocabulary.kind import unit_name
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.service_property import KIND
from edgetune.agent.vocabulary.places import SYSTEMD
from edgetune.agent.vocabulary.values import Target, Value, format_cpus, parse_cpus

LIMITS = {
    "LimitAS": "Max address space",
    "LimitCORE": "Max core file size",
    "LimitCPU": "Max cpu time",
    "LimitDATA": "Max data size",
    "LimitFSIZE": "Max file size",
    "LimitLOCKS": "Max file locks",
    "LimitMEMLOCK": "Max locked memory",
    "LimitMSGQUEUE": "Max msgqueue size",
    "LimitNICE": "Max nice priority",
    "LimitNOFILE": "Max open files",
    "LimitNPROC": "Max processes",
    "LimitRSS": "Max resident set",
    "LimitRTPRIO": "Max realtime priority",
    "LimitRTTIME": "Max realtime timeout",
    "LimitSIGPENDING": "Max pending signals",
    "LimitSTACK": "Max stack size",
}
"""The limits of a process: as systemd calls them, and as /proc/PID/limits does."""


class ServiceProperty(FileKept):
    """A property of a service's unit, such as LimitNOFILE; it takes effect with a restart."""

    kind = KIND
    # Below SYSTEMD/SERVICE.service.d
    drop_in = "90-edgetune-{rank}.conf"
    roots = tuple(f"{top}/systemd/system" for top in ("/etc", "/run", "/usr/lib", "/lib"))
    # Where /proc/PID tells what the main process has: systemd tells what it would start it with.
    running = {
        "CPUAffinity": ("status", r"^Cpus_allowed_list:\s*(\S+)"),
        "Nice": ("stat", r"[\s\S]*\)(?: \S+){16} (\S+)"),
        **{name: ("limits", rf"^{text} +(\S+) +(\S+)") for name, text in LIMITS.items()},
    }

    def probe_stored(self, setting: Setting, tuning: str) -> None:
        """Unsupported when a drop-in that is read after ours decides."""
        self.refuse_overridden(setting.target, tuning)

    def refuse_overridden(self, target: Target, tuning: str) -> None:
        """Unsupported when a drop-in that is read after ours sets a property."""
        winner = self._winner(target)
        ours = self._ours(target, self.rank(tuning))
        if winner and winner[0].endswith(".conf") and later(winner[0], ours):
            raise Unsupported(f"{winner[0]} is read after ours and sets it to {winner[1]}")

    def runtime(self, target: Target) -> Value:
        """Its effective value; ``soft:hard`` for a limit whose two halves differ."""
        name = target["property"]
        of_process = name in self.running
        return self._normal(name, (self._has if of_process else self._show)(target, name))

    def persistent(self, target: Target) -> Optional[Value]:
        winner = self._winner(target)
        return winner[1] if winner else None

    def files(self, journal: Journal, settings: List[Setting]) -> Dict[str, str]:
        content: Dict[str, str] = {}
        for setting in settings:
            name = self._ours(setting.target, journal.rank)
            text = content.get(name) or header(journal) + "[Service]\n"
            # Several assignments of a set of CPUs add up, unless an empty one comes between.
            if setting.target["property"] == "CPUAffinity":
                text += "CPUAffinity=\n"
            content[name] = text + f"{setting.target['property']}={setting.value}\n"
        return content

    def reload(self) -> None:
        self.host.run("systemctl", "daemon-reload")

    def _show(self, target: Target, name: str) -> str:
        try:
            # Not --value: systemd has that from version 230 on only.
            text = self.host.run("systemctl", "show", "-p", name, target["service"])
        except Failed as error:
            raise Unsupported(str(error)) from None
        key, _, value = text.strip().partition("=")
        if key != name or not value:
            raise Unsupported(f"systemctl tells no {name} of {target['service']}")
        return value.replace("18446744073709551615", "infinity")

    def _has(self, target: Target, name: str) -> str:
        file, pattern = self.running[name]
        text = self.host.text(f"/proc/{self._show(target, 'MainPID')}/{file}")
        match = re.search(pattern, text, re.MULTILINE)
        if match is None:
            raise Unsupported(f"{target['service']} has no main process that tells its {name}")
        values = dict.fromkeys(match.groups())
        return ":".join(values).replace("unlimited", "infinity")

    def _normal(self, name: str, value: str) -> str:
        if name == "CPUAffinity":
            with contextlib.suppress(ValueError):
                return format_cpus(parse_cpus(value))
        return " ".join(value.split())

    def _winner(self, target: Target) -> Optional[Tuple[str, str]]:
        """File and value of the assignment that decides; an empty one takes all back."""
        unit, name = unit_name(target["service"]), target["property"]
        units = [f"{root}/{unit}" for root in self.roots if self.host.exists(f"{root}/{unit}")]
        last = None
        for file in units[:1] + drop_ins(self.host, [f"{root}/{unit}.d" for root in self.roots]):
            for line in self.host.text(file).splitlines():
                key, equals, value = line.partition("=")
                if equals and key.strip() == name:
                    value = self._normal(name, value)
                    last = (file, value) if value else None
        return last

    def _ours(self, target: Target, rank: str) -> str:
        name = self.drop_in.format(rank=rank)
        return f"{SYSTEMD}/{unit_name(target['service'])}.d/{name}"
