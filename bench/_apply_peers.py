# SPDX-License-Identifier: Apache-2.0
"""What bench.agent compares: each sets all WANTED on the lab host once, or raises BenchError."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Callable

from bench._lab_host import FILE, WANTED, LabHost, sysctl_file
from bench._ssh_hosts import Site
from bench._ssh_peers import TIMEOUT, last_line, request_text, run_program, ssh_options
from bench._table import BenchError
from edgetune.net.hosts.conversation import BOOTSTRAP
from edgetune.net.hosts.fleet import Fleet
from edgetune.site.config import read_config
from edgetune.site.inventory import Host

Apply = Callable[[], None]
TUNING = {"tuning": "bench", "digest": "sha256:bench"}
SETTINGS = [
    {"id": f"sysctl:{key}", "kind": "sysctl", "target": {"key": key}, "value": value}
    for key, value in WANTED.items()
]
CONFIRM_WITHIN = 360
"""Seconds, about what a rollout asks for where settings of the network change."""

FLEET_PROCESS = """\
import json, sys
from edgetune.site.config import read_config
from edgetune.net.hosts.fleet import Fleet
from edgetune.site.inventory import Host

given = json.load(sys.stdin)
result = Fleet(read_config(given["config"])).ask(
    [Host(**{**given["host"], "host_keys": ()})], "apply", lambda host: given["request"]
)
sys.exit(result["e000"].error)
"""


class Edgetune:
    """edgetune on the host, which has planned beforehand."""

    def __init__(self, host: LabHost) -> None:
        self._site = host.site
        self._host = Host("e000", host.address, host.site.port, "", "", "e000")
        self._config = {
            "inventory": "none",
            "ssh_user": host.site.user,
            "ssh_key_file": str(host.site.key),
            "ssh_known_hosts": str(host.site.known_hosts),
        }
        planned = self._ask("plan", {**TUNING, "settings": SETTINGS})["settings"]
        facts = ("runtime", "persistent")
        self._request = {
            **TUNING,
            "epoch": 1,
            "rollout": "bench",
            "settings": SETTINGS,
            "expect": {row["id"]: {name: row[name] for name in facts} for row in planned},
            "confirm_within": CONFIRM_WITHIN,
        }

    def apply(self) -> None:
        """As an action does it once it runs."""
        self._ask("apply", self._request)

    def apply_and_confirm(self) -> None:
        """The same, and the second connection, which keeps the host from taking it back."""
        self.apply()
        confirmed = self._ask("confirm", {**TUNING, "epoch": 1, "settings": SETTINGS})
        if not confirmed["confirmed"]:
            raise BenchError("edgetune: not confirmed")

    def apply_in_a_process(self) -> None:
        """The same as `apply`, with a process of its own and its imports."""
        given = {"config": self._config, "host": vars(self._host), "request": self._request}
        command = [sys.executable, "-c", FLEET_PROCESS]
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
        _run_with_input("edgetune", command, json.dumps(given).encode(), environment)

    def apply_over_openssh(self) -> None:
        """The agent itself, started as the other programs on the host are."""
        answer = ssh(self._site, BOOTSTRAP, request_text("apply", self._request))
        if not json.loads(answer)["ok"]:
            raise BenchError(f"the agent: {answer!r}")

    def take_back(self) -> None:
        """Undo the tuning if it stands there."""
        self._ask("restore", {"epoch": 1, "tuning": TUNING["tuning"]})

    def _ask(self, verb: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        fleet = Fleet(read_config(self._config))
        result = fleet.ask([self._host], verb, lambda host: request)["e000"]
        if result.failed:
            raise BenchError(f"edgetune: {result.error}")
        return result.data


def sysctl(host: LabHost) -> Apply:
    """What nobody can do with less: one ssh, one sysctl, nothing kept over a boot."""

    def apply() -> None:
        ssh(host.site, "sysctl -q -p -", sysctl_file(WANTED).encode())

    return apply


def tuned(host: LabHost, packages: Path | None) -> Apply:
    """`tuned` once, without its daemon; from `packages`, unpacked, where the host has none."""
    if packages:
        _unpack(packages, host)
    host.shell.run("mkdir -p /etc/tuned/bench")
    lines = "".join(f'{key} = "{value}"\n' for key, value in WANTED.items())
    host.shell.write("/etc/tuned/bench/tuned.conf", f"[sysctl]\n{lines}")
    host.shell.write("/etc/tuned/tuned-main.conf", "daemon = 0\ndynamic_tuning = 0\n")

    def apply() -> None:
        ssh(host.site, "tuned --no-dbus --no-socket -p bench 2>&1")

    return apply


def _unpack(packages: Path, host: LabHost) -> None:
    # Not the machine's own system: the lab host has a disk of its own above it.
    words = ["tar", "-C", str(packages), "-c", "etc", "usr"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as packing:
        assert packing.stdout
        ssh(host.site, "tar -x -C / --no-same-owner --keep-directory-symlink", packing.stdout)


def _sysctl_task(key: str, value: str) -> dict[str, Any]:
    kept = {"sysctl_file": FILE, "sysctl_set": True, "reload": False}
    return {"ansible.posix.sysctl": {"name": key, "value": value, **kept}}


TASKS = [_sysctl_task(key, value) for key, value in WANTED.items()]
LOOP = [
    {
        **_sysctl_task("{{ item.key }}", "{{ item.value }}"),
        "loop": "{{ wanted | dict2items }}",
        "vars": {"wanted": WANTED},
    }
]
ONE_FILE: list[dict[str, Any]] = [
    {"ansible.builtin.copy": {"content": sysctl_file(WANTED), "dest": FILE}, "register": "file"},
    {"ansible.builtin.command": f"sysctl -q -p {FILE}", "when": "file is changed"},
]


def ansible(host: LabHost, tasks: list[dict[str, Any]]) -> Apply:
    """One play without facts, pipelining, one connection that its tasks share."""
    environment, command = ansible_tasks([host], tasks, f"{len(tasks)}-tasks")
    return lambda: run_program(command, host.site.folder, environment)


def ansible_tasks(
    hosts: Sequence[LabHost], tasks: list[dict[str, Any]], name: str
) -> tuple[dict[str, str], list[str]]:
    """The environment and the command of a play on these hosts, run in their site's folder."""
    site = hosts[0].site
    folder = site.folder
    play = {"hosts": "all", "gather_facts": False, "tasks": tasks}
    (folder / f"{name}.json").write_text(json.dumps([play]))
    (folder / "ansible.cfg").write_text("[ssh_connection]\npipelining = True\n")
    lines = [f"{own.address} ansible_python_interpreter=/usr/bin/python3\n" for own in hosts]
    (folder / "ansible-hosts").write_text("".join(lines))
    # OpenSSH takes the first of several values.
    shared = ["-o", "ControlMaster=auto", "-o", "ControlPersist=60s"]
    environment = {
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
        "ANSIBLE_HOME": str(folder / "ansible"),
        "ANSIBLE_SSH_ARGS": " ".join([*shared, *ssh_options(site)]),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(folder / "control"),
        "LC_ALL": "C.UTF-8",
    }
    return environment, ["ansible-playbook", "-i", "ansible-hosts", f"{name}.json"]


def end_shared_connections(site: Site) -> None:
    """Ansible leaves its connections open for the next play, which here shall make its own."""
    for path in (site.folder / "control").glob("*"):
        command = ["ssh", "-O", "exit", "-o", f"ControlPath={path}", site.addresses[0]]
        subprocess.run(command, capture_output=True, check=False)


def ssh(site: Site, command: str, given: Any = b"") -> bytes:
    """What a command on the host prints; ``given`` (bytes, or a file) is its input."""
    return _run_with_input("ssh", ["ssh", *ssh_options(site), site.addresses[0], command], given)


def _run_with_input(
    name: str, command: list[str], given: Any, environment: Mapping[str, str] | None = None
) -> bytes:
    feed: dict[str, Any] = {"input": given} if isinstance(given, bytes) else {"stdin": given}
    done: subprocess.CompletedProcess[bytes] = subprocess.run(
        command, env=environment, capture_output=True, timeout=TIMEOUT, check=False, **feed
    )
    if done.returncode:
        raise BenchError(f"{name}: {last_line(done.stderr or done.stdout)}")
    return done.stdout
