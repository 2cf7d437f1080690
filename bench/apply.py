# SPDX-License-Identifier: Apache-2.0
"""Twenty settings on one host, or on many: edgetune's Fleet and its peers, on hosts of the lab.

Every side is asked for the same 20 sysctls, 5 of which differ while 15 are as wanted. After each
run the benchmark reads all 20 from each host, which must be as wanted, and sets the hosts back;
neither is measured. Everything goes over the sshd of the hosts, over new connections, 16 hosts at
once. Orders are shuffled, figures are medians over the rounds, and what is told in proportion to
the first row is between two runs of one round.

With one host (`--hosts 1`) there are further sides, which are about what it takes to change it.
With several, each side also looks at all 20 afterwards: edgetune confirms over a second connection,
the others compare in a task of their own.

Measured: wall clock, CPU of the controller (this process and the programs it starts), and CPU of
the hosts. The time that Fleet takes to be imported is in the row "a process of its own" only; that
of other programs to start is in. The hosts are namespaces of this machine, so they take CPU away
from the clients: the last column says how fast a side would be that had its hosts elsewhere, on as
many cores as here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Callable

from bench._lab_host import CHANGING, FILE, WANTED, LabHost, lab_hosts, sysctl_file
from bench._ssh_peers import (
    PARALLEL,
    fleet_config,
    host_of,
    lacks,
    pyinfra_inventory,
    request_text,
    run_program,
    ssh_options,
    versions,
)
from bench._table import (
    BenchError,
    carry_out,
    count_chosen,
    figures,
    measure,
    options,
    shown,
    told,
    working,
)
from edgetune.net.hosts.conversation import BOOTSTRAP
from edgetune.net.hosts.fleet import Fleet
from edgetune.site.config import read_config

CONFIRMED = "edgetune Fleet, apply and confirm"
MOST = 64
COLUMNS = {
    "client": "{client}",
    "ms for all (median, min..max)": told("ms"),
    "hosts/s": "{per_s[median]:.2g}",
    "the first is so many times as fast": "{times[median]:.2f}",
    "controller CPU ms/host": "{cpu_ms[median]:.0f}",
    "host CPU ms/host": "{other_cpu_ms[median]:.0f}",
    "hosts/s by the controller's CPU": "{by_cpu:.2g}",
}
HEADING = "{hosts} hosts, {rounds} rounds, load {load:.1f}, {all} sysctls, {changed} to change"
DIFFERENCES = """\
edgetune: sets what differs; keeps all 20 over a boot and proves it; before that it writes down what
    was there, durably, and arms a timer that takes it back unless it is confirmed
sysctl -p: writes all 20; nothing is kept over a boot, what was there before is lost
tuned: writes all 20, once; nothing is taken back without its daemon, nor set at a boot
ansible, pyinfra: set what differs and keep it over a boot; what was there before is lost"""
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
host = Host(**{**given["host"], "host_keys": ()})
result = Fleet(read_config(given["config"])).ask([host], "apply", lambda host: given["request"])
sys.exit(result[host.name].error)
"""
Work = Callable[[], object]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status comes back."""
    parser = options(__doc__ or "")
    parser.add_argument("--rounds", type=int, metavar="N", help="3, or 1 with --quick")
    parser.add_argument(
        "--tuned", type=Path, metavar="DIRECTORY", help="tuned's Debian packages, unpacked"
    )
    chosen, count = count_chosen(parser, arguments, "hosts", 16, quick=2, most=MOST)
    rounds = chosen.rounds or (1 if chosen.quick else 3)
    show = shown(HEADING, COLUMNS, lambda document: print(DIFFERENCES))
    return carry_out("apply", chosen, lambda: run(count, rounds, chosen.tuned), show)


def run(count: int, rounds: int, tuned: Path | None = None) -> dict[str, Any]:
    """Measure; BenchError if a side fails, or does not do all of its work."""
    with lab_hosts(count) as hosts:
        edgetune = Edgetune(hosts)

        def settle(name: str) -> None:
            for host in hosts:
                try:
                    host.expect(WANTED)
                except BenchError as error:
                    raise BenchError(f"{name}: {host.address}: {error}") from None
            end_shared_connections(hosts[0])
            edgetune.take_back()
            for host in hosts:
                host.reset()

        def try_out(name: str, peer: Work) -> None:
            peer()  # what is loaded once only is loaded now
            settle(name)

        peers: dict[str, Work] = own_peers(edgetune, hosts)
        for name, peer in peers.items():
            try_out(name, peer)
        further, others = working(_further(hosts, tuned), try_out)
        load = os.getloadavg()[0]
        samples = measure(
            {**peers, **further},
            rounds,
            lambda: sum(host.site.cpu_seconds() for host in hosts),
            settle,
        )
    rows = figures(samples, next(iter(peers)), count)
    cores = len(os.sched_getaffinity(0))
    for row in rows:
        own = 1 if "edgetune" in row["client"] else cores
        row["by_cpu"] = own * 1000 / max(row["cpu_ms"]["median"], 1e-3)
    return {
        "hosts": count,
        "all": len(WANTED),
        "changed": len(CHANGING),
        "rounds": rounds,
        "load": load,
        "versions": versions(),
        **others,
        "figures": rows,
    }


def own_peers(edgetune: Edgetune, hosts: Sequence[LabHost]) -> dict[str, Work]:
    """What can be compared wherever there is a lab; it must work."""
    if len(hosts) > 1:
        return {CONFIRMED: edgetune.apply_and_confirm}
    return {
        "edgetune Fleet, apply": edgetune.apply,
        CONFIRMED: edgetune.apply_and_confirm,
        "edgetune, a process of its own": edgetune.apply_in_a_process,
        "edgetune's agent over OpenSSH": edgetune.apply_over_openssh,
        # What nobody can do with less: one ssh, one sysctl, nothing kept over a boot.
        "sysctl -p over OpenSSH": lambda: ssh(
            hosts[0], "sysctl -q -p -", sysctl_file(WANTED).encode()
        ),
    }


def _further(
    hosts: Sequence[LabHost], packages: Path | None
) -> dict[str, tuple[str, Callable[[], Work]]]:
    """The sides that may be there, each behind what it lacks."""
    no_tuned = "" if packages else lacks("tuned") and "not installed, and no --tuned"
    no_ansible, no_pyinfra = lacks("ansible-playbook"), lacks("pyinfra")
    found: dict[str, tuple[str, Callable[[], Work]]] = {
        f"ansible, {way}": (no_ansible, partial(ansible, hosts, way)) for way in WAYS
    }
    if len(hosts) == 1:
        own = {"tuned over OpenSSH": (no_tuned, partial(tuned_of, hosts[0], packages))}
        return {**own, **found}
    del found["ansible, 20 tasks"]
    return {**found, "pyinfra, server.sysctl": (no_pyinfra, partial(pyinfra, hosts))}


class Edgetune:
    """edgetune on all hosts, which has planned beforehand."""

    def __init__(self, hosts: Sequence[LabHost]) -> None:
        self._lab = hosts[0]
        self._hosts = [host_of(host.site, host.address) for host in hosts]
        self._config = fleet_config(hosts[0].site)
        planned = self._ask("plan", {**TUNING, "settings": SETTINGS})
        facts = ("runtime", "persistent")
        self._requests = {
            name: {
                **TUNING,
                "epoch": 1,
                "rollout": "bench",
                "settings": SETTINGS,
                "expect": {row["id"]: {n: row[n] for n in facts} for row in own["settings"]},
                "confirm_within": CONFIRM_WITHIN,
            }
            for name, own in planned.items()
        }

    def apply(self) -> None:
        """As an action does it once it runs."""
        self._ask("apply", self._requests)

    def apply_and_confirm(self) -> None:
        """The same, and the second connection, which keeps hosts from taking it back."""
        fleet = Fleet(read_config(self._config))
        self._ask("apply", self._requests, fleet)
        confirmed = self._ask("confirm", {**TUNING, "epoch": 1, "settings": SETTINGS}, fleet)
        if not all(each["confirmed"] for each in confirmed.values()):
            raise BenchError("edgetune: not confirmed")

    def apply_in_a_process(self) -> None:
        """The same as `apply` on one host, with a process of its own and its imports."""
        (host,) = self._hosts
        given = {"config": self._config, "host": vars(host), "request": self._requests[host.name]}
        environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", FLEET_PROCESS]
        run_program(command, environment=environment, given=json.dumps(given).encode())

    def apply_over_openssh(self) -> None:
        """The agent itself, started as the other programs on the host are."""
        (request,) = self._requests.values()
        answer = ssh(self._lab, BOOTSTRAP, request_text("apply", request))
        if not json.loads(answer)["ok"]:
            raise BenchError(f"the agent: {answer!r}")

    def take_back(self) -> None:
        """Undo the tuning where it stands."""
        self._ask("restore", {"epoch": 1, "tuning": TUNING["tuning"]})

    def _ask(
        self, verb: str, request: Mapping[str, Any], fleet: Fleet | None = None
    ) -> dict[str, Mapping[str, Any]]:
        """One request for all hosts, or one for each by its name."""
        fleet = fleet or Fleet(read_config(self._config))
        results = fleet.ask(self._hosts, verb, lambda host: request.get(host.name, request))
        for result in results.values():
            if result.failed:
                raise BenchError(f"edgetune: {result.error}")
        return {name: result.data for name, result in results.items()}


def tuned_of(host: LabHost, packages: Path | None) -> Work:
    """`tuned` once, without its daemon; from `packages`, unpacked, where the host has none."""
    if packages:
        # Not the machine's own system: the lab host has a disk of its own above it.
        words = ["tar", "-C", str(packages), "-c", "etc", "usr"]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as packing:
            ssh(host, "tar -x -C / --no-same-owner --keep-directory-symlink", packing.stdout)
    host.shell.run("mkdir -p /etc/tuned/bench")
    lines = "".join(f'{key} = "{value}"\n' for key, value in WANTED.items())
    host.shell.write("/etc/tuned/bench/tuned.conf", f"[sysctl]\n{lines}")
    host.shell.write("/etc/tuned/tuned-main.conf", "daemon = 0\ndynamic_tuning = 0\n")
    return lambda: ssh(host, "tuned --no-dbus --no-socket -p bench 2>&1")


def _sysctl_task(key: str, value: str) -> dict[str, Any]:
    kept = {"sysctl_file": FILE, "sysctl_set": True, "reload": False}
    return {"ansible.posix.sysctl": {"name": key, "value": value, **kept}}


WAYS: Mapping[str, list[dict[str, Any]]] = {
    # As an expert would write it.
    "a file and sysctl -p": [
        {
            "ansible.builtin.copy": {"content": sysctl_file(WANTED), "dest": FILE},
            "register": "file",
        },
        {"ansible.builtin.command": f"sysctl -q -p {FILE}", "when": "file is changed"},
    ],
    "a loop": [
        {
            **_sysctl_task("{{ item.key }}", "{{ item.value }}"),
            "loop": "{{ wanted | dict2items }}",
            "vars": {"wanted": WANTED},
        }
    ],
    "20 tasks": [_sysctl_task(key, value) for key, value in WANTED.items()],
}
COMPARE = {
    "ansible.builtin.command": f"sysctl -n {' '.join(WANTED)}",
    "register": "seen",
    "changed_when": False,
    "failed_when": "seen.stdout.replace('\\t', ' ').splitlines() != wanted",
    "vars": {"wanted": [*WANTED.values()]},
}


def ansible(hosts: Sequence[LabHost], way: str) -> Work:
    """One play over all hosts, without facts, with pipelining, over one connection to each."""
    site = hosts[0].site
    folder, name = site.folder, f"{way.replace(' ', '-')}.json"
    tasks = [*WAYS[way], *([COMPARE] if len(hosts) > 1 else [])]
    play = {"hosts": "all", "gather_facts": False, "tasks": tasks}
    (folder / name).write_text(json.dumps([play]))
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
    command = ["ansible-playbook", "-i", "ansible-hosts", name, "-f", str(PARALLEL)]
    return lambda: run_program(command, folder, environment)


def end_shared_connections(host: LabHost) -> None:
    """Ansible leaves its connections open for the next play, which here shall make its own."""
    for path in (host.site.folder / "control").glob("*"):
        command = ["ssh", "-O", "exit", "-o", f"ControlPath={path}", host.address]
        subprocess.run(command, capture_output=True, check=False)


def pyinfra(hosts: Sequence[LabHost]) -> Work:
    """One deploy over all hosts."""
    site = hosts[0].site
    inventory = pyinfra_inventory(site, [host.address for host in hosts])
    wanted = {key: _number(value) for key, value in WANTED.items()}
    tests = "; ".join(
        f'test "$(echo $(cat /proc/sys/{key.replace(".", "/")}))" = "{value}" || exit 1'
        for key, value in WANTED.items()
    )
    (site.folder / "pyinfra_deploy.py").write_text(
        "from pyinfra.operations import server\n"
        f"for key, value in {wanted!r}.items():\n"
        f"    server.sysctl(key=key, value=value, persist=True, persist_file={FILE!r})\n"
        f"server.shell(commands=[{tests!r}])\n"
    )
    words = ["-y", "--parallel", str(PARALLEL), str(inventory), "pyinfra_deploy.py"]
    return lambda: run_program(["pyinfra", *words], site.folder, {"LC_ALL": "C.UTF-8"})


def _number(value: str) -> object:
    """As pyinfra compares: numbers, one or several."""
    parts = [int(part) for part in value.split()]
    return parts[0] if len(parts) == 1 else parts


def ssh(host: LabHost, command: str, given: Any = b"") -> bytes:
    """What a command on the host prints; ``given`` (bytes, or a file) is its input."""
    return run_program(["ssh", *ssh_options(host.site), host.address, command], given=given)


if __name__ == "__main__":
    sys.exit(main())
