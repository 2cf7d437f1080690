# SPDX-License-Identifier: Apache-2.0
"""Properties of services, as rc(8) gives them to what it starts: see rc.conf(5) and rc.subr(8)."""

import json
import os
import re
from typing import Dict, Iterator, List, Optional, Tuple

from edgetune.agent.freebsd.readings import cpus_in
from edgetune.agent.journal import Journal
from edgetune.agent.kinds import FileKept, header
from edgetune.agent.protocol import Unsupported
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.service_property import KIND
from edgetune.agent.vocabulary.values import Target, Value, format_cpus

FIRST = ("/etc/rc.conf", "/etc/rc.conf.local")
DIRECTORIES = ("/etc/rc.conf.d", "/usr/local/etc/rc.conf.d")
"""Read after those, for one service each: a file of its name, or all in a directory of its name."""

VARIABLES = {"Nice": "nice", "CPUAffinity": "cpuset", "LimitNOFILE": "limits"}
"""What the names of these properties of systemd end with in variables of rc(8)."""

# rc(8) reads its files as a shell does: nothing but these gets into one.
_TAKEN = {"Nice": "-?[0-9]{1,2}", "CPUAffinity": "[0-9,-]+", "LimitNOFILE": "[0-9]+|infinity"}

_LIMITS = re.compile("-B -n ([0-9]+|infinity)")
"""limits(1) sets both halves of the limit of open files, and nothing else."""


class ServiceProperty(FileKept):
    """A variable of a service; the process that rc(8) started tells what is in force."""

    kind = KIND

    def probe(self, setting: Setting) -> None:
        """Unsupported for a property that rc(8) has not, or a value that it cannot take."""
        name, value = setting.target["property"], str(setting.value)
        if name not in VARIABLES:
            raise Unsupported(f"rc(8) has no {name}, but {', '.join(VARIABLES)}")
        if not re.fullmatch(_TAKEN[name], value):
            raise Unsupported(f"{value} is no {name} that rc(8) takes")
        place = self._directory(setting.target)
        if os.path.isfile(self.host.path(place)):
            raise Unsupported(f"{place} is a file: rc(8) reads a directory of that name, too")

    def probe_stored(self, setting: Setting, tuning: str) -> None:
        """Unsupported when a file that is read after ours decides, or says more than ours can."""
        self.probe(setting)
        ours, variable = self._ours(setting.target, self.rank(tuning)), _variable(setting.target)
        files = [file for file, _ in self._assignments(setting.target)]
        for file, text in self._assignments(setting.target):
            if setting.target["property"] == "LimitNOFILE" and not _LIMITS.fullmatch(text):
                raise Unsupported(f"{file} sets {variable} to {text}: more than open files")
        if files and files[-1] > ours and files[-1] not in FIRST:
            raise Unsupported(f"{files[-1]} is read after ours, and sets {variable}")

    def runtime(self, target: Target) -> Value:
        process, name = self._process(target), target["property"]
        if name == "Nice":
            return self.host.run("ps", "-o", "nice=", "-p", process).strip()
        if name == "CPUAffinity":
            cpus = cpus_in(self.host.run("cpuset", "-g", "-p", process))
            if cpus is None:
                raise Unsupported(f"cpuset(1) tells no CPUs of process {process}")
            return format_cpus(cpus)
        if name == "LimitNOFILE":
            return self._open_files(process)
        raise Unsupported(f"rc(8) has no {name}, but {', '.join(VARIABLES)}")

    def persistent(self, target: Target) -> Optional[Value]:
        said = self._assignments(target) if target["property"] in VARIABLES else []
        if not said:
            return None
        text = said[-1][1]
        limits = _LIMITS.fullmatch(text)
        return limits.group(1) if limits and target["property"] == "LimitNOFILE" else text

    def files(self, journal: Journal, settings: List[Setting]) -> Dict[str, str]:
        content: Dict[str, str] = {}
        for setting in settings:
            file = self._ours(setting.target, journal.rank)
            limit = setting.target["property"] == "LimitNOFILE"
            text = f"-B -n {setting.value}" if limit else str(setting.value)
            line = f'{_variable(setting.target)}="{text}"\n'
            content[file] = content.get(file, header(journal)) + line
        return content

    def _process(self, target: Target) -> str:
        """The number of its main process, the first that its script tells."""
        output = self.host.attempt("service", target["service"], "onestatus")[1]
        found = re.search(r"is running as pid ([0-9]+)", output)
        if found is None:
            raise Unsupported(f"{target['service']} tells no process that runs")
        return found.group(1)

    def _open_files(self, process: str) -> str:
        """Exact as JSON alone: else procstat(1) rounds to K and M. ``soft:hard`` if they differ."""
        output = self.host.run("procstat", "--libxo", "json", "rlimit", process)
        try:
            limit = _find(json.loads(output), "openfiles")
            halves = dict.fromkeys(str(limit[half]) for half in ("soft_limit", "hard_limit"))
        except (ValueError, KeyError, TypeError):
            raise Unsupported(f"procstat(1) tells no open files of process {process}") from None
        return ":".join(halves)

    def _assignments(self, target: Target) -> List[Tuple[str, str]]:
        """File and value of each assignment, in the order in which rc(8) reads them."""
        pattern = re.compile(rf"\s*{_variable(target)}=([\"']?)(.*?)\1\s*(?:#.*)?")
        found = []
        for file in self._files(target["service"]):
            for line in self.host.text(file).splitlines():
                match = pattern.fullmatch(line)
                if match:
                    found.append((file, " ".join(match.group(2).split())))
        return found

    def _files(self, service: str) -> Iterator[str]:
        yield from FIRST
        for directory in DIRECTORIES:
            place = f"{directory}/{service}"
            names = self.host.names(place)
            yield from [f"{place}/{name}" for name in names] or [place]

    def _directory(self, target: Target) -> str:
        return f"{DIRECTORIES[0]}/{target['service']}"

    def _ours(self, target: Target, rank: str) -> str:
        return f"{self._directory(target)}/90-edgetune-{rank}"


def _variable(target: Target) -> str:
    """The name of a variable cannot have what that of a service can."""
    service = re.sub("[^A-Za-z0-9_]", "_", target["service"])
    return f"{service}_{VARIABLES[target['property']]}"


def _find(document: object, name: str) -> Dict[str, object]:
    """What stands by a name, however deep; KeyError for nothing."""
    if isinstance(document, dict):
        if isinstance(document.get(name), dict):
            found: Dict[str, object] = document[name]
            return found
        for inner in document.values():
            try:
                return _find(inner, name)
            except KeyError:
                pass
    raise KeyError(name)
